// Reads a JSON list of formulas, writes a JSON list of [index, message] for those that KaTeX doesn't take without a remark.
import { readFileSync } from "node:fs";
import katex from "katex";

// KaTeX only warns of characters that its fonts lack.
console.warn = (message) => {
  throw new Error(message);
};

const failures = [];
JSON.parse(readFileSync(0, "utf8")).forEach((formula, index) => {
  try {
    katex.renderToString(formula, { displayMode: true, throwOnError: true, strict: "error" });
  } catch (error) {
    failures.push([index, error.message]);
  }
});
console.log(JSON.stringify(failures));
