// Opens every page in a frame of every width, and writes as JSON what doesn't show its whole width, and code below a button.
const cut = (document, width) => {
  const found = [];
  const note = (element, whole, shown) =>
    found.push({ element: element.tagName.toLowerCase(), whole: Math.round(whole), shown: Math.round(shown), text: [...(element.textContent ?? "").trim().replace(/\s+/g, " ")].slice(0, 60).join("") });
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth + 1) note(root, root.scrollWidth, root.clientWidth);
  for (const element of document.querySelectorAll(".md-content *")) {
    if (!element.clientWidth || element.scrollWidth <= element.clientWidth + 2 || element.closest(".katex, .arithmatex")) continue;
    const overflow = document.defaultView.getComputedStyle(element).overflowX;
    const isCode = element.matches("pre, pre *, .md-typeset__scrollwrap, table");
    if (overflow === "hidden" || overflow === "clip" || (width > 1000 && isCode && overflow !== "visible"))
      note(element, element.scrollWidth, element.clientWidth);
  }
  for (const button of document.querySelectorAll(".md-code__nav, clipboard-copy")) {
    const code = button.parentElement.querySelector(":scope > code") ?? button.parentElement.nextElementSibling;
    const shown = button.getBoundingClientRect().left - code.getBoundingClientRect().left;
    if (shown > 0 && code.clientWidth > shown + 1) note(code, code.clientWidth, shown);
  }
  // Letters of pictures that are drawn wider than this are too small on a phone.
  for (const picture of document.querySelectorAll(".md-content img"))
    if (picture.naturalWidth > 760 && picture.clientWidth < 760) note(picture, picture.naturalWidth, picture.clientWidth);
  return found;
};

const settled = () => new Promise((resolve) => setTimeout(resolve, 300));
const found = [];
for (const width of given.widths) {
  for (let i = 0; i < given.pages.length; i += 8) {
    const opened = given.pages.slice(i, i + 8).map(async (page) => {
      const frame = document.createElement("iframe");
      frame.width = width;
      frame.height = 900;
      frame.src = page;
      document.body.append(frame);
      await new Promise((resolve) => (frame.onload = resolve));
      await settled();
      found.push(...cut(frame.contentDocument, width).map((element) => ({ page, width, ...element })));
      frame.remove();
    });
    await Promise.all(opened);
  }
}
document.querySelector("pre").textContent = JSON.stringify(found);
