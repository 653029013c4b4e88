// @ts-check
// What a page says of a graph: the way of the value through streams, heads and neurons.

import { button, folded, full, make, partsTable, quoted, scrolling, seven, sum, toggle } from "./elements.js";
import { scorePanel } from "./score.js";

/** Moves to the tokens of a row: source, token and each head's part; and what each head moves from all other tokens.
 * @typedef {{edges: number[][], others: number[][]}} Moves
 */
/**
 * @typedef {object} Neuron
 * @property {string} name
 * @property {number} contribution
 * @property {number} coefficient
 * @property {number} activation
 * @property {number} pre_activation
 * @property {[string, number][]} reads
 * @property {[string, number][]} raised
 * @property {[string, number][]} lowered
 * @property {string} switch_off
 */
/** @typedef {{name: string, members: number[], predicted: number, measured: number | null}} Group */
/**
 * @typedef {object} Graph
 * @property {string[]} rows
 * @property {number[][]} streams
 * @property {number[][]} kept
 * @property {number[][]} terms
 * @property {number[][]} biases
 * @property {(Moves | null)[]} moves
 * @property {number} after
 * @property {Neuron[]} neurons
 * @property {Group[]} groups
 * @property {import("./score.js").Score[]} scores
 * @property {boolean} has_scores
 */
/** @typedef {import("./page.js").Acts} Acts */
/** An edge of one head: where it goes is the chosen cell. @typedef {{source: number, head: number}} Edge */

/** What one head moves. @typedef {Omit<import("./picture.js").Arrow, "label" | "sentence">} HeadMove */

/** All that heads move, the largest first.
 * @param {(Moves | null)[]} moves
 * @returns {HeadMove[]}
 */
export function headMoves(moves) {
  const all = moves.flatMap((some, row) => (some?.edges ?? []).flatMap(([source, token, ...heads]) => heads.map((part, head) => ({ row, source, token, head, part }))));
  return all.filter(({ part }) => part).sort((a, b) => Math.abs(b.part) - Math.abs(a.part));
}

/** The arrow of what a head moves. @param {string[]} rows @param {string[]} labels @param {HeadMove} move @returns {import("./picture.js").Arrow} */
export const arrowOf = (rows, labels, move) => ({
  ...move, label: `head ${rows[move.row].replace("layer ", "")}.${move.head} ${seven(Number(move.part.toPrecision(3)))}`,
  sentence: `${rows[move.row]}, head ${move.head}, from ${move.source} ${quoted(labels[move.source])} to ${move.token} ${quoted(labels[move.token])}: ${full(move.part)}`,
});

/** What a token of a stream is the sum of, and where it goes.
 * @param {Graph} graph
 * @param {string[]} labels
 * @param {number} row
 * @param {number} token
 * @param {(edge: Edge) => void} open
 * @param {Acts | null} acts
 */
export function nodePanel(graph, labels, row, token, open, acts) {
  const panel = make("section", { class: "cell", "aria-live": "polite" });
  if (row < 0 || token < 0) return panel;
  const stream = graph.streams[row][token];
  /** @param {number} index */
  const named = (index) => `token ${index} ${quoted(labels[index])}`;
  panel.append(make("h2", {}, `The stream after ${graph.rows[row]}, token ${token} `, make("bdi", {}, quoted(labels[token])), ": ", make("span", { title: full(stream) }, seven(stream))));
  const columns = make("div", { class: "columns" });
  const moves = graph.moves[row];
  const incoming = (moves?.edges ?? []).filter((edge) => edge[1] === token);
  const heads = moves?.others[token]?.length ?? 0;
  const titles = Array.from({ length: heads }, (_, head) => `head ${head}`);
  /** @type {[string, ...(number | undefined)[]][]} */
  const entries = [[row ? "kept from the stream before" : "its embedding", graph.kept[row][token]],
    ...incoming.map(([source, , ...parts]) => /** @type {[string, ...number[]]} */ ([`moved from ${named(source)}`, sum(parts), ...parts])),
    ...(moves ? [/** @type {[string, ...number[]]} */ (["moved from all other tokens", sum(moves.others[token]), ...moves.others[token]])] : []),
    ...(row ? [/** @type {[string, number]} */ (["written by the layer's neurons", graph.terms[row][token]])] : []),
    ["biases and norm offsets", graph.biases[row][token]]];
  /** @param {number} entry @param {number} column */
  const pick = (entry, column) => {
    if (column < 1 || !incoming[entry - 1] || !graph.has_scores) return undefined;
    const [source, head] = [incoming[entry - 1][0], column - 1];
    return acts || scoreOf(graph, row, token, { source, head }) ? () => open({ source, head }) : undefined;
  };
  const into = partsTable(["what", "part", ...titles], entries, ["the stream", stream], { pick });
  columns.append(make("div", {}, make("h3", {}, "It is the sum of"), make("div", { class: "scroll" }, into), ...(into.querySelector("button") ? [make("p", { class: "faint" }, "An underlined number of a head opens why it attends there.")] : [])));
  const next = graph.moves[row + 1];
  if (next) {
    const outgoing = next.edges.filter((edge) => edge[0] === token);
    /** @type {[string, ...(number | undefined)[]][]} */
    const goes = [["kept by the next stream", graph.kept[row + 1][token]],
      ...outgoing.map(([, target, ...parts]) => /** @type {[string, ...number[]]} */ ([`moved to ${named(target)}`, sum(parts), ...parts]))];
    goes.push(["smaller moves", stream - sum(goes.map((entry) => Number(entry[1])))]);
    const further = Array.from({ length: next.others[0].length }, (_, head) => `head ${head}`);
    columns.append(make("div", {}, make("h3", {}, "It goes on to"), make("div", { class: "scroll" }, partsTable(["where", "part", ...further], goes, ["the stream", stream]))));
  }
  panel.append(columns);
  return panel;
}

/** Why a head attends where an edge is, if it is known.
 * @param {Graph} graph
 * @param {number} row
 * @param {number} token
 * @param {Edge} edge
 */
const scoreOf = (graph, row, token, { source, head }) => graph.scores.find((score) => score.layer === row - 1 && score.head === head && score.query === token && score.key === source);

/** One head's move from a token to another, and why the head attends there.
 * @param {Graph} graph
 * @param {string[]} labels
 * @param {number} row
 * @param {number} token
 * @param {Edge} edge
 * @param {Acts | null} acts
 */
export function edgePanel(graph, labels, row, token, { source, head }, acts) {
  const panel = make("section", { class: "cell", "aria-live": "polite" });
  const moved = graph.moves[row]?.edges.find((edge) => edge[0] === source && edge[1] === token)?.[2 + head];
  if (moved === undefined || !graph.has_scores) return panel;
  const layer = row - 1;
  panel.append(make("h3", {}, `Layer ${layer}, head ${head}, from token ${source} `, make("bdi", {}, quoted(labels[source])), ` to ${token} `, make("bdi", {}, quoted(labels[token])), ": ", make("span", { title: full(moved) }, seven(moved))));
  const known = scoreOf(graph, row, token, { source, head });
  if (acts) panel.append(make("p", {}, toggle(acts, `edge ${layer}:${head} ${source}>${token} set 0`, "switch this edge off", "switch this edge off")),
    make("p", { class: "faint" }, "It takes away what the head carries along it, the values' bias too; the rest of the head's attention stays as it is."));
  if (known) panel.append(scorePanel(known));
  else if (acts) panel.append(button("why the head attends there", async () => {
    const score = await acts.score(layer, head, token, source);
    if (!score) return;
    graph.scores.push(score);
    panel.lastElementChild?.replaceWith(scorePanel(score));
  }));
  else panel.append(make("p", { class: "faint" }, `Why the head attends there isn't in this page: ask duat attention TEXT --layer ${layer} --head ${head} --query ${token} --key ${source}`));
  return panel;
}

/** The heads whose attention a page explains: where it can ask, those that move most.
 * @param {Graph} graph
 * @param {Acts | null} acts
 * @param {(place: {layer: number, head: number, query: number, key: number}) => void} choose
 */
export function whyList(graph, acts, choose) {
  const places = acts && graph.has_scores ? headMoves(graph.moves).slice(0, 6).map(({ row, source, token, head }) => ({ layer: row - 1, head, query: token, key: source })) : graph.scores;
  if (!places.length) return [];
  return folded("Why the heads that move most attend where they do",
    make("div", { class: "units" }, ...places.map((score) => button(`layer ${score.layer}, head ${score.head}, from token ${score.key} to ${score.query}`, () => choose(score)))));
}

/** The neurons with the largest contributions: one opens, several are put into a group.
 * @param {Graph} graph
 * @param {number} chosen
 * @param {(neuron: number) => void} choose
 * @param {(group: Group) => void} group
 * @param {Acts | null} acts
 */
export function neuronPanels(graph, chosen, choose, group, acts) {
  if (!graph.neurons.length) return [];
  const boxes = graph.neurons.map((neuron) => make("input", { type: "checkbox", "aria-label": `in the group: ${neuron.name}` }));
  const list = make("div", { class: "units" }, ...graph.neurons.map((neuron, index) => {
    const pressed = String(index === chosen);
    return make("span", {}, boxes[index], button(`${neuron.name}: ${seven(neuron.contribution)}`, () => choose(index === chosen ? -1 : index), { "aria-pressed": pressed }));
  }));
  const name = make("input", { type: "text", "aria-label": "name of the group", placeholder: "name of the group", maxlength: "80" });
  const add = button("group the marked ones", () => {
    const members = [...boxes.keys()].filter((index) => boxes[index].checked);
    if (members.length) group({ name: name.value || "unnamed", members, predicted: -sum(members.map((index) => graph.neurons[index].contribution)), measured: null });
  });
  return [list, neuronPanel(graph.neurons[chosen], acts), make("p", {}, name, " ", add), make("h3", {}, "Groups of neurons, all switched off together"), groupsTable(graph, acts)];
}

/** @param {Neuron | undefined} neuron @param {Acts | null} acts */
export function neuronPanel(neuron, acts) {
  const panel = make("section", { class: "cell", "aria-live": "polite" });
  if (!neuron) return panel;
  const { coefficient, activation, contribution, pre_activation, reads, raised, lowered } = neuron;
  const off = acts && neuron.switch_off ? [" ", toggle(acts, neuron.switch_off, "switch it off", `switch off ${neuron.name}`)] : [];
  panel.append(make("h3", {}, `${neuron.name}: `, make("span", { title: full(contribution) }, seven(contribution))), make("p", { title: `${full(coefficient)} × ${full(activation)}` }, `coefficient ${seven(coefficient)} × activation ${seven(activation)}`, ...off));
  const columns = make("div", { class: "columns" }, make("div", {}, partsTable(["it reads", "part"], reads, ["its pre-activation", pre_activation])));
  if (raised.length) columns.append(make("div", {}, partsTable(["it raises the logit of", "by"], raised, null), partsTable(["it lowers the logit of", "by"], lowered, null)));
  panel.append(columns, make("p", { class: "faint" }, "What it reads is exact, with attention patterns, norms and gates held. What it raises and lowers is its direct effect."));
  return panel;
}

/** @param {Graph} graph @param {Acts | null} acts */
function groupsTable(graph, acts) {
  /** @param {Group} group @returns {string | Node} */
  const says = (group) => {
    const { members, predicted, measured } = group;
    const changes = members.map((index) => graph.neurons[index].switch_off);
    if (measured === null && acts) return button("run the model again", async () => { group.measured = await acts.measure(changes); table.replaceWith(groupsTable(graph, acts)); });
    if (measured === null) return `not run again. ${changes.map((change) => `--edit '${change}'`).join(" ")}`;
    return Math.abs(predicted - measured) <= 0.1 * Math.abs(measured) ? "the parts add up to what running again says, within a tenth" : "the parts don't add up to what running again says: other neurons and patterns react";
  };
  const table = scrolling("groups", make("table", { class: "parts" },
    make("thead", {}, make("tr", {}, ...["group", "neurons", "predicted", "run again", "in words"].map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, ...graph.groups.map((group) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, group.name)), make("td", {}, String(group.members.length)),
      make("td", { title: full(group.predicted) }, seven(group.predicted)), make("td", {}, group.measured === null ? "–" : seven(group.measured)), make("td", { class: "words" }, says(group)))))));
  return table;
}
