// Opens every page in a frame of every width, and writes the elements that don't show their whole width as JSON.
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
  return found;
};

const settled = () => new Promise((resolve) => setTimeout(resolve, 300));
const found = [];
for (const width of given.widths) {
  for (const page of given.pages) {
    const frame = document.createElement("iframe");
    frame.width = width;
    frame.height = 900;
    frame.src = page;
    document.body.append(frame);
    await new Promise((resolve) => (frame.onload = resolve));
    await settled();
    found.push(...cut(frame.contentDocument, width).map((element) => ({ page, width, ...element })));
    frame.remove();
  }
}
document.querySelector("pre").textContent = JSON.stringify(found);
