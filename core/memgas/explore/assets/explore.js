"use strict";
// Everything that comes from a memory reaches the page as text (textContent), never as HTML.

const GRANULARITIES = ["session", "turn", "summary", "keyword"];
const PARTS = [...GRANULARITIES, "association", "date"];
const $ = (id) => document.getElementById(id);
const state = { namespace: "", sessions: [], at: -1, found: null, open: "", path: [], allowForget: false, dots: [] };
let searching = null, opening = null, cy = null;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

async function ask(name, parameters = {}, signal = undefined) {
  const answer = await fetch(`api/${name}?${new URLSearchParams(parameters)}`, { signal });
  const data = await answer.json();
  if (!answer.ok) throw new Error(data.error || `${answer.status}`);
  return data;
}

const day = (iso) => iso.slice(0, 10);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const percent = (share) => `${Math.round(100 * share)}%`;
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

function showError(error) {
  if (error.name !== "AbortError") $("status").textContent = error.message;
}

// the memory

async function begin() {
  const told = await ask("state");
  state.allowForget = told.allow_forget;
  $("mode").textContent = told.allow_forget ? "forgetting allowed" : "read only";
  $("namespace").replaceChildren(...told.namespaces.map((name) => make("option", { value: name }, name)));
  drawLegend();
  if (!told.namespaces.length) {
    state.ticks = [];
    $("status").textContent = "This memory is empty: nothing was ever said.";
    $("count").textContent = "0";
    drawTimeline();
    return;
  }
  await choose(told.namespaces[0]);
}

async function choose(namespace) {
  state.namespace = namespace;
  state.sessions = await ask("sessions", { namespace });
  state.at = state.sessions.length - 1;
  $("count").textContent = `${state.sessions.length.toLocaleString("en")}`;
  closeSession();
  layTimeline();
  if ($("query").value.trim()) await search();
  else await forgetSearch();
}

// the timeline

function layTimeline() {
  const canvas = $("timeline"), width = canvas.clientWidth;
  const times = state.sessions.map((session) => Date.parse(session.at));
  const first = Math.min(...times), span = Math.max(1, Math.max(...times) - first);
  const n = times.length, radius = n > 800 ? 2.2 : n > 200 ? 3 : 5;
  const stacks = new Map(), bin = 2 * radius + 1, room = Math.floor(78 / bin);
  const columns = times.map((time) => Math.round((n === 1 ? width / 2 : 14 + (width - 28) * (time - first) / span) / bin));
  const levels = columns.map((column) => {
    const stacked = stacks.get(column) || 0;
    stacks.set(column, stacked + 1);
    return stacked % room;
  });
  const height = 44 + bin * Math.max(1, ...levels);
  canvas.style.height = `${height}px`;
  state.dots = columns.map((column, i) => ({ x: column * bin, y: height - 26 - radius - levels[i] * bin, radius }));
  state.ticks = n ? [0, 1, 2, 3, 4].map((i) => ({ x: 14 + (width - 28) * i / 4, text: new Date(first + span * i / 4).toISOString().slice(0, 10) })) : [];
  if (n === 1) state.ticks = [{ x: width / 2, text: day(state.sessions[0].at) }];
  drawTimeline();
}

function drawTimeline() {
  const canvas = $("timeline"), ratio = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.strokeStyle = colour("line");
  pen.beginPath();
  pen.moveTo(0, height - 17.5);
  pen.lineTo(width, height - 17.5);
  pen.stroke();
  pen.fillStyle = colour("quiet");
  for (const [i, tick] of (state.ticks || []).entries()) {
    if (width < 520 && i % 2) continue;
    pen.textAlign = state.ticks.length === 1 ? "center" : i === 0 ? "left" : i === 4 ? "right" : "center";
    pen.fillText(tick.text, tick.x + (i === 0 && state.ticks.length > 1 ? -12 : i === 4 ? 12 : 0), height - 3);
  }
  const places = new Map((state.found?.hits || []).map((hit, i) => [hit.id, i + 1]));
  pen.fillStyle = colour("edge");
  for (const [i, dot] of state.dots.entries()) if (!places.has(state.sessions[i].id)) disc(pen, dot.x, dot.y, dot.radius);
  for (const [i, dot] of state.dots.entries()) {
    const place = places.get(state.sessions[i].id);
    if (!place) continue;
    pen.fillStyle = colour("accent");
    disc(pen, dot.x, dot.y, 9);
    pen.fillStyle = colour("accent-ink");
    pen.textAlign = "center";
    pen.font = "bold 11px system-ui, sans-serif";
    pen.fillText(place, dot.x, dot.y + 4);
  }
  const open = state.sessions.findIndex((session) => session.id === state.open);
  if (open >= 0) ring(pen, state.dots[open], colour("path"));
  if (document.activeElement === canvas && state.at >= 0) ring(pen, state.dots[state.at], colour("ink"));
}

function disc(pen, x, y, radius) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 7);
  pen.fill();
}

function ring(pen, dot, style) {
  if (!dot) return;
  pen.beginPath();
  pen.lineWidth = 2;
  pen.strokeStyle = style;
  pen.arc(dot.x, dot.y, Math.max(dot.radius, 6) + 5, 0, 7);
  pen.stroke();
}

function dotAt(event) {
  const box = $("timeline").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
  let best = -1, nearest = 18 * 18;
  for (const [i, dot] of state.dots.entries()) {
    const distance = (dot.x - x) ** 2 + (dot.y - y) ** 2;
    if (distance < nearest) [best, nearest] = [i, distance];
  }
  return best;
}

function tip(i) {
  const box = $("tip"), dot = state.dots[i];
  box.hidden = !dot;
  if (!dot) return;
  box.textContent = `${day(state.sessions[i].at)}  ${state.sessions[i].id}`;
  const room = $("timeline").clientWidth - box.offsetWidth;
  box.style.left = `${Math.max(0, Math.min(room, dot.x - box.offsetWidth / 2))}px`;
  box.style.top = `${Math.max(0, dot.y - 38)}px`;
}

function pointAt(i) {
  state.at = Math.max(0, Math.min(state.sessions.length - 1, i));
  const session = state.sessions[state.at], canvas = $("timeline");
  if (!session) return;
  canvas.setAttribute("aria-valuemax", state.sessions.length - 1);
  canvas.setAttribute("aria-valuenow", state.at);
  canvas.setAttribute("aria-valuetext", `${day(session.at)} ${session.id}, ${state.at + 1} of ${state.sessions.length}`);
  drawTimeline();
  tip(state.at);
}

// searching

async function search() {
  const query = $("query").value.trim();
  searching?.abort();
  if (!query || !state.namespace) return forgetSearch();
  searching = new AbortController();
  const { signal } = searching;
  try {
    const found = await ask("search", { namespace: state.namespace, q: query, k: $("k").value || 5 }, signal);
    if (signal.aborted) return;
    state.found = found;
    showFound();
    if (state.open) await openSession(state.open, false);
  } catch (error) { showError(error); }
}

async function forgetSearch() {
  state.found = null;
  $("hits").replaceChildren();
  $("router").replaceChildren();
  $("timing").textContent = "";
  $("status").textContent = state.sessions.length ? "Type a question: weights, hits and paths follow as you type." : "";
  drawTimeline();
  if (!state.namespace) return;
  try {
    const graph = await ask("overview", { namespace: state.namespace });
    if (!state.found) drawGraph(graph);
  } catch (error) { showError(error); }
}

function showFound() {
  const { hits, routes, seconds, degraded, n_sessions: n } = state.found;
  const total = Object.values(seconds).reduce((sum, each) => sum + each, 0);
  $("timing").textContent = hits.length ? `${hits.length} of ${n.toLocaleString("en")} sessions, ${(1000 * total).toFixed(0)} ms` : "";
  $("status").textContent = [hits.length ? "" : "Nothing found.", ...degraded].filter(Boolean).join(" ");
  showRouter(routes);
  const largest = Math.max(...hits.map((hit) => positives(hit.parts)), 1e-9);
  $("hits").replaceChildren(...hits.map((hit, i) => make("li", {}, hitCard(hit, i, largest))));
  drawTimeline();
  drawGraph(state.found.graph);
}

function showRouter(routes) {
  const box = $("router");
  if (box.children.length !== 3 * routes.length) {
    box.replaceChildren(...routes.flatMap((route) => [
      make("span", {}, route.granularity), make("span", { class: "bar" }, make("i", { class: route.granularity })),
      make("span", { class: "quiet" }),
    ]));
  }
  for (const [i, route] of routes.entries()) {
    box.children[3 * i + 1].firstChild.style.width = percent(route.weight);
    const entropy = route.entropy === null ? "–" : route.entropy.toFixed(2);
    box.children[3 * i + 2].textContent = `${percent(route.weight)}  H ${entropy} over ${route.n_units.toLocaleString("en")}`;
  }
}

const positives = (parts) => PARTS.reduce((sum, name) => sum + Math.max(0, parts[name] || 0), 0);

function hitCard(hit, i, largest) {
  const bar = make("span", { class: "bar", "aria-hidden": "true" }, ...PARTS.filter((name) => hit.parts[name] > 0).map((name) => {
    const piece = make("i", { class: name, title: `${name} ${signed(hit.parts[name])}` });
    piece.style.width = `${100 * hit.parts[name] / largest}%`;
    return piece;
  }));
  const { place, place_before: before } = hit.reason;
  const moved = before === place ? "associations did not move it" : `associations moved it ${before > place ? "up" : "down"} from place ${before}`;
  return make("button", { class: "hit", type: "button", "aria-pressed": "false", "data-id": hit.id, onclick: () => openSession(hit.id) },
    make("span", { class: "top" }, make("span", { class: "rank" }, `${i + 1}`), make("b", {}, hit.id),
      make("span", { class: "quiet" }, day(hit.at)), make("span", { class: "score" }, hit.score.toFixed(2))),
    ...hit.evidence.map((piece) => make("span", { class: piece.is_best ? "said" : "said near" },
      make("span", { class: "who" }, `${piece.speaker}:`), ...marked(piece.text))),
    bar,
    make("span", { class: "moved" }, `rank score ${hit.rank_score.toFixed(3)} = ${PARTS.filter((name) => hit.parts[name]).map((name) => `${name} ${signed(hit.parts[name])}`).join("  ")}`),
    make("span", { class: "moved" }, moved), make("span", { class: "way" }, hit.path_text));
}

const marked = (pieces) => pieces.map(([text, is]) => is ? make("mark", {}, text) : text);

// one session

function closeSession() {
  state.open = "";
  $("detail").replaceChildren(make("p", { class: "quiet" }, "Choose a hit, a dot of the timeline, or a unit of the graph."));
  lightUp();
}

async function openSession(id, byHand = true) {
  state.open = id;
  state.path = [];
  opening?.abort();
  opening = new AbortController();
  const { signal } = opening, detail = $("detail");
  const i = state.sessions.findIndex((session) => session.id === id);
  if (i >= 0) state.at = i;
  lightUp();
  drawTimeline();
  try {
    const told = await ask("session", { namespace: state.namespace, id }, signal);
    const why = make("div", { class: "why", id: "why" });
    detail.replaceChildren(...sessionParts(told, state.found ? why : null));
    if (byHand && innerWidth < 1100) $("session").scrollIntoView({ block: "start" });
    if (byHand) $("session").scrollTop = 0;
    if (!state.found) return;
    why.append(make("p", { class: "quiet" }, "Asking why…"));
    const { query } = state.found;
    const answer = await ask("why", { namespace: state.namespace, q: query, id, k: $("k").value || 5 }, signal);
    if (signal.aborted) return;
    showWhy(why, answer);
    if (answer.stage !== "found" && answer.path) lightPath(answer.path);
  } catch (error) {
    if (error.name !== "AbortError") detail.replaceChildren(make("p", {}, error.message));
  }
}

function sessionParts(told, why) {
  const about = [told.at.slice(0, 16).replace("T", " "), told.open ? "open" : "", told.pending ? "digest pending" : ""].filter(Boolean).join(", ");
  const hit = state.found?.hits.find((each) => each.id === told.id);
  const evidence = new Map((hit?.evidence || []).map((piece) => [piece.position, piece]));
  return [
    make("div", {}, make("h3", {}, told.id), make("p", { class: "quiet" }, about)),
    why,
    told.summary ? make("p", {}, told.summary) : null,
    told.keywords.length ? make("p", { class: "quiet" }, told.keywords.join(" · ")) : null,
    make("h4", {}, "What was said"),
    make("div", { class: "turns" }, ...told.turns.map((turn, position) => {
      const piece = evidence.get(position);
      return make("p", { class: "said" }, make("span", { class: "who" }, `${turn.speaker}:`),
        ...(piece ? marked(piece.text) : [turn.text || "(forgotten)"]));
    })),
    state.allowForget ? make("p", { class: "buttons" }, make("button", { class: "danger", type: "button", id: "forget", onclick: () => confirmForget(told.id) }, "Forget this session…")) : null,
  ].filter(Boolean);
}

function showWhy(box, told) {
  const isIn = told.stage === "found";
  box.classList.toggle("in", isIn);
  const title = isIn ? `Why it came back, at place ${told.place}` : "Why it did not come back";
  const place = !isIn && told.place ? ` It is at place ${told.place} of ${told.n_candidates.toLocaleString("en")}.` : "";
  const sentence = told.sentence.charAt(0).toUpperCase() + told.sentence.slice(1);
  box.replaceChildren(...[
    make("h4", {}, title),
    make("p", {}, `${sentence}.${place}`),
    told.is_pending ? make("p", {}, "Its digest is pending: it was compared by its turns.") : null,
    told.reason ? sharesTable(told) : null,
    !isIn && told.path_text ? make("p", { class: "quiet" }, told.path_text) : null,
    isIn ? null : make("h4", {}, "What would bring it in, alone"),
    isIn ? null : changesList(told),
    told.note ? make("p", { class: "quiet" }, told.note) : null,
  ].filter(Boolean));
}

function sharesTable({ reason, rank_score: total }) {
  const rows = reason.shares.map((share) => make("tr", {},
    make("td", {}, make("i", { class: `dot ${share.unit.granularity}` }), share.unit.granularity),
    ...[share.dense, share.lexical, share.association].map((value) => make("td", {}, signed(value))),
    make("td", {}, percent(share.weight))));
  const foot = [reason.date ? `date ${signed(reason.date)}, ` : "", `in all ${signed(total)}`].join("");
  return make("table", { class: "parts" },
    make("thead", {}, make("tr", {}, ...["", "meaning", "words", "associations", "weight"].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...rows), make("tfoot", {}, make("tr", {}, make("td", { colspan: "5" }, foot))));
}

function changesList(told) {
  if (!told.changes.length) return make("p", {}, "Nothing that was tried.");
  const show = (value) => value === null ? "none" : typeof value === "object" ? JSON.stringify(value) : String(value);
  return make("ul", { class: "changes" }, ...told.changes.map((change) => make("li", {},
    make("code", {}, change.setting), ` ${show(change.needed)} instead of ${show(change.now)}: place ${change.place}`)));
}

// forgetting

function confirmForget(id) {
  $("confirm-id").textContent = id;
  $("confirm").returnValue = "";
  $("confirm").showModal();
  $("cancel").focus();
}

async function reallyForget() {
  const id = $("confirm-id").textContent;
  $("confirm").close();
  try {
    const answer = await fetch("api/forget", {
      method: "POST", headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ namespace: state.namespace, id }),
    });
    if (!answer.ok) throw new Error((await answer.json()).error);
    const { namespace } = state, { namespaces } = await ask("state");
    if (!namespaces.includes(namespace)) return location.reload();
    await choose(namespace);
    $("status").textContent = `Forgotten: ${id}`;
    $("query").focus();
  } catch (error) { showError(error); }
}

// the graph

function graphStyle() {
  return [
    { selector: "node", style: { "background-color": (node) => colour(node.data("granularity")), width: 13, height: 13, "border-width": 0 } },
    { selector: "node[granularity = 'session']", style: { width: 19, height: 19 } },
    { selector: "node[?seed]", style: { "border-width": 3, "border-color": colour("accent"), "border-opacity": .55 } },
    { selector: "edge", style: { width: (edge) => .6 + 2 * Math.max(0, edge.data("similarity")), "line-color": colour("edge"), opacity: .5, "curve-style": "haystack" } },
    { selector: "node.named", style: { label: "data(label)", color: colour("ink"), "font-size": 11, "text-margin-y": -5, "text-outline-color": colour("bg"), "text-outline-width": 2.5, "z-index": 9, "text-max-width": 110, "text-wrap": "ellipsis" } },
    { selector: "node.hit", style: { width: 22, height: 22 } },
    { selector: ".faint", style: { opacity: .22 } },
    { selector: "node.own", style: { opacity: 1 } },
    { selector: "node.path", style: { opacity: 1, "border-width": 4, "border-color": colour("path"), "border-opacity": 1, "z-index": 10 } },
    { selector: "edge.path", style: { opacity: 1, width: 5, "line-color": colour("path"), "z-index": 10 } },
    { selector: "node.at", style: { "underlay-color": colour("accent"), "underlay-opacity": .35, "underlay-padding": 8 } },
  ];
}

function drawGraph(graph) {
  const hits = new Set((state.found?.hits || []).map((hit) => hit.path.at(-1)));
  const box = $("graph"), [wide, high] = [box.clientWidth - 100, box.clientHeight - 70];
  const elements = [
    ...graph.nodes.map((node) => ({
      data: { ...node, label: node.session },
      position: { x: wide * node.x, y: high * node.y }, classes: hits.has(node.id) || (graph.by === "session" && graph.nodes.length <= 24) ? "hit named" : "",
    })),
    ...graph.edges.map((edge) => ({ data: edge })),
  ];
  cy?.destroy();
  cy = cytoscape({ container: $("graph"), elements, style: graphStyle(), layout: { name: "preset" }, minZoom: .1, maxZoom: 4, autoungrabify: true, boxSelectionEnabled: false });
  cy.fit(undefined, 26);
  cy.on("tap", "node", ({ target }) => openSession(target.data("session")));
  cy.on("mouseover", "node", ({ target }) => tellNode(target));
  cy.on("mouseout", "node", () => { $("node-about").textContent = ""; });
  $("map-about").textContent = graph.by === "session" ? `${graph.nodes.length} sessions with the most` : `${graph.nodes.length} units around the hits`;
  lightUp();
}

function tellNode(node) {
  const { session, granularity, position, seed } = node.data();
  const what = state.found ? `${session} / ${granularity} ${position}${seed ? ", a seed" : ""}` : session;
  $("node-about").textContent = `${what}: ${node.degree()} associations shown`;
}

function lightUp() {
  for (const button of document.querySelectorAll(".hit")) button.setAttribute("aria-pressed", String(button.dataset.id === state.open));
  if (!cy) return;
  cy.elements().removeClass("faint path own");
  if (!state.open || cy.nodes().empty()) return;
  const own = cy.nodes().filter((node) => node.data("session") === state.open);
  const path = state.found?.hits.find((hit) => hit.id === state.open)?.path || state.path;
  cy.elements().addClass("faint");
  own.removeClass("faint").addClass("own");
  if (path.length < 2) {
    const near = (path.length ? cy.getElementById(path[0]) : own).connectedEdges();
    near.removeClass("faint").connectedNodes().removeClass("faint");
  }
  for (const [i, id] of path.entries()) {
    cy.getElementById(id).removeClass("faint").addClass("path");
    if (i) cy.getElementById(path[i - 1]).edgesWith(cy.getElementById(id)).removeClass("faint").addClass("path");
  }
}

// The path of a session that did not come back may lead out of what is drawn: its units are added.
function lightPath({ steps, similarities }) {
  const known = (id) => cy.getElementById(id);
  const place = { x: cy.extent().x2 - 70, y: cy.extent().y2 - 60 };
  for (const [i, step] of steps.entries()) {
    const { unit_id: id, session_id: session, granularity, position } = step;
    if (known(id).empty()) cy.add({ data: { id, session, granularity, position, label: session, seed: i === 0 }, position: { ...place } });
    const before = i && steps[i - 1].unit_id;
    if (i && known(before).edgesWith(known(id)).empty()) cy.add({ data: { source: before, target: id, similarity: similarities[i - 1] } });
    known(id).addClass("named");
  }
  state.path = steps.map((step) => step.unit_id);
  lightUp();
}

function drawLegend() {
  const names = { session: "session text", turn: "turns", summary: "summary", keyword: "keywords", association: "associations, path", date: "date" };
  $("legend").replaceChildren(...Object.entries(names).map(([name, text]) => make("li", {}, make("i", { class: name }), text)));
}

// hands

function debounce(work, delay) {
  let timer = 0;
  return () => { clearTimeout(timer); timer = setTimeout(work, delay); };
}

$("query").addEventListener("input", debounce(search, 220));
$("k").addEventListener("change", search);
$("form").addEventListener("submit", (event) => { event.preventDefault(); search(); });
$("namespace").addEventListener("change", (event) => choose(event.target.value).catch(showError));
$("cancel").addEventListener("click", () => $("confirm").close());
$("really").addEventListener("click", reallyForget);

const strip = $("timeline");
strip.addEventListener("mousemove", (event) => tip(dotAt(event)));
strip.addEventListener("mouseleave", () => tip(-1));
strip.addEventListener("click", (event) => { const i = dotAt(event); if (i >= 0) openSession(state.sessions[i].id); });
strip.addEventListener("focus", () => pointAt(state.at));
strip.addEventListener("blur", () => { tip(-1); drawTimeline(); });
strip.addEventListener("keydown", (event) => {
  const far = Math.max(1, Math.round(state.sessions.length / 20));
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -far, PageUp: far, Home: -1e9, End: 1e9 };
  if (event.key in steps) { event.preventDefault(); pointAt(state.at + steps[event.key]); }
  if (event.key === "Enter" && state.sessions[state.at]) openSession(state.sessions[state.at].id);
});

$("hits").addEventListener("keydown", (event) => {
  const cards = [...document.querySelectorAll(".hit")], at = cards.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && at >= 0) { event.preventDefault(); cards[Math.max(0, Math.min(cards.length - 1, at + step))].focus(); }
});

$("graph").addEventListener("keydown", (event) => {
  if (!cy || cy.nodes().empty()) return;
  const nodes = cy.nodes(), now = nodes.filter(".at"), step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step) {
    event.preventDefault();
    const i = now.empty() ? (step > 0 ? 0 : nodes.length - 1) : (nodes.toArray().indexOf(now[0]) + step + nodes.length) % nodes.length;
    now.removeClass("at");
    nodes[i].addClass("at");
    tellNode(nodes[i]);
  } else if (event.key === "Enter" && now.nonempty()) openSession(now.data("session"));
  else if (event.key === "+" || event.key === "-") cy.zoom({ level: cy.zoom() * (event.key === "+" ? 1.25 : .8), renderedPosition: { x: cy.width() / 2, y: cy.height() / 2 } });
  else if (event.key === "0") cy.fit(undefined, 26);
});
$("graph").addEventListener("blur", () => cy?.nodes().removeClass("at"));

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !["INPUT", "SELECT"].includes(document.activeElement.tagName)) { event.preventDefault(); $("query").focus(); }
  if (event.key === "Escape" && !$("confirm").open && state.open) { closeSession(); drawTimeline(); }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawTimeline(); cy?.style(graphStyle()); });
addEventListener("resize", debounce(() => { layTimeline(); cy?.resize(); cy?.fit(undefined, 26); }, 120));

begin().catch(showError);
