// Who points at a box of the graph, or goes to it by keyboard, sees the paths between it and the table of the page.
const graph = document.querySelector("svg.graph");
const edges = [...(graph?.querySelectorAll("[data-from]") ?? [])];
const start = graph?.querySelector(".node.start")?.dataset.node;

// The edges that are reached from a box in one direction.
function reached(node, near, far) {
  const known = new Set([node]);
  const found = new Set();
  for (const one of known) {
    for (const edge of edges) {
      if (edge.dataset[near] === one) {
        found.add(edge);
        known.add(edge.dataset[far]);
      }
    }
  }
  return found;
}

function mark(node) {
  const ways = [];
  if (node !== undefined && node !== start) {
    ways.push([reached(node, "from", "to"), reached(start, "to", "from")]);
    ways.push([reached(node, "to", "from"), reached(start, "from", "to")]);
  }
  for (const edge of edges) {
    edge.classList.toggle("marked", ways.some(([there, back]) => there.has(edge) && back.has(edge)));
  }
}

for (const event of ["pointerover", "focusin"]) {
  graph?.addEventListener(event, ({ target }) => {
    mark((target.closest("[data-node]") ?? target.querySelector("[data-node]"))?.dataset.node);
  });
}
for (const event of ["pointerleave", "focusout"]) graph?.addEventListener(event, () => mark());
