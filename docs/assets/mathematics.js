// Formulas: pages have them in elements of their own, notebooks as text between dollars.
document.querySelectorAll(".arithmatex, .jp-RenderedMarkdown, .jp-RenderedLatex").forEach((element) =>
  renderMathInElement(element, {
    delimiters: [
      { left: "$$", right: "$$", display: true },
      { left: "\\[", right: "\\]", display: true },
      { left: "\\(", right: "\\)", display: false },
      { left: "$", right: "$", display: false },
    ],
  }),
);
