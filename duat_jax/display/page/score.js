// @ts-check
// Why a head attends where it does.

import { full, make, partsTable, seven } from "./elements.js";

/**
 * @typedef {object} Score
 * @property {string} title
 * @property {number} layer
 * @property {number} head
 * @property {number} query
 * @property {number} key
 * @property {number | null} versus
 * @property {number} value
 * @property {string} note
 * @property {string} verdict
 * @property {[string, number][]} pairs
 * @property {[string, number][]} queries
 * @property {[string, number][]} keys
 */

/** @param {Score} score */
export function scorePanel({ title, versus, value, note, verdict, pairs, queries, keys }) {
  const compared = (versus ?? null) !== null;
  /** @type {[string, number]} */
  const total = [compared ? "the difference" : "the score", value];
  return make("div", {}, make("h4", {}, make("bdi", {}, title)), make("p", { title: full(value) }, `${compared ? "The difference of the two scores" : "The score"} is ${seven(value)}; the sum of all pairs of sources `, make("span", { class: `verdict ${verdict}` }, verdict), `. ${note}`),
    make("div", { class: "columns" },
      make("div", {}, partsTable(["of the query × of the key", "part"], pairs, total)),
      make("div", {}, partsTable(["of the query, with the whole key", "part"], queries, total)),
      make("div", {}, partsTable(["of the key, with the whole query", "part"], keys, total))),
    make("p", { class: "faint" }, "Exact, with norms and earlier attention patterns held."));
}
