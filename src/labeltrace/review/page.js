// The review page. Names come from data and are set as text, never as markup; the server keeps all that matters.
"use strict";

const $ = (id) => document.getElementById(id);
const MOST_FOUND = 100; // classes that the search lists at a time
const POLL = 700; // milliseconds between two looks at features that are being computed
const DECISIONS = { doubted: "relabel or review", review: "review", relabel: "relabel", keep: "keep", all: "anything" };

let about, place, sample;
let busy = false; // a decision is on its way: keys pressed meanwhile would be about a sample not yet seen

const stored = (store, key, otherwise) => {
  try { return store.getItem(key) ?? otherwise; } catch { return otherwise; }
};
const keep = (store, key, value) => {
  try { store.setItem(key, value); } catch { /* a browser that keeps nothing */ }
};
const tab = stored(sessionStorage, "tab", Math.random().toString(36).slice(2));
keep(sessionStorage, "tab", tab);

async function ask(path, body) {
  const request = body === undefined ? {} : {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  };
  let answer;
  try {
    answer = await fetch(path, request);
  } catch {
    throw new Error("The server does not answer. Is labeltrace review still running?");
  }
  if (!answer.ok) throw new Error((await answer.text()).trim() || `The server answered ${answer.status}.`);
  return answer.json();
}

// One thing at a time; what goes wrong is shown, and the sample stays.
async function doing(work) {
  if (busy) return;
  busy = true;
  try {
    await work();
    $("alert").hidden = true;
  } catch (error) {
    $("alert").textContent = error.message;
    $("alert").hidden = false;
  } finally {
    busy = false;
  }
}

// Moving

function selection(changes) {
  const wanted = { decision: $("decision").value, observed: $("observed").value, state: $("state").value, ...changes };
  return new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== "" && value != null));
}

async function look(changes) {
  return ask(`api/look?${selection(changes)}`);
}

async function go(move) {
  show(await look({ row: sample?.row, move }));
}

// The first sample of the selection that nobody has seen; where all are, the first.
async function begin() {
  const asked = $("state").value;
  let found = await look({ state: asked === "all" ? "open" : asked, move: "next" });
  if (found.row === null && asked === "all") found = await look({ move: "next" });
  show(found);
}

async function decide(action, label = null) {
  const name = label === null ? "" : ` ${about.classes[label]}`;
  const id = sample.id;
  await ask("api/decide", { row: sample.row, action, label, tab });
  const asked = $("state").value;
  const after = await look({ row: sample.row, move: "next", state: asked === "all" ? "open" : asked });
  const left = after.row !== null;
  show(left ? after : await look({ row: sample.row, move: "here" }));
  say(`${action}${name}: sample ${id}. ${left ? "" : "That was the last one here."}`);
}

async function undo() {
  const event = await ask("api/undo", { tab });
  if (event === null) return say("Nothing of yours to undo in this tab.", true);
  show(await look({ row: event.row, move: "here" }));
  say(`Taken back: sample ${event.id}.`, true);
}

// Showing

function show(found) {
  place = found;
  sample = found.sample;
  keep(sessionStorage, "row", sample ? sample.row : "");
  showProgress();
  $("main").hidden = !sample;
  $("empty").hidden = Boolean(sample);
  $("empty").textContent = sample ? "" : "No sample here: choose another selection above.";
  if (!sample) return;
  const label = about.classes[sample.observed], suggestion = about.classes[sample.suggested];
  const same = sample.observed === sample.suggested;
  showPicture();
  $("name").textContent = `sample ${sample.id}`;
  $("says").textContent = sample.decision;
  $("says").className = `badge ${sample.decision}`;
  $("why").textContent = sample.why;
  $("label").textContent = label;
  $("suggestion").textContent = suggestion;
  meter("label", sample.label_reliability, about.enough.label, "");
  const counted = sample.in_training;
  const differs = counted !== null && Math.abs(counted - sample.suggestion_reliability) >= 0.005;
  meter("suggestion", sample.suggestion_reliability, about.enough.suggestion, differs ? `; in training it counted as ${counted.toFixed(2)}` : "");
  $("keep-class").textContent = label;
  $("relabel-class").textContent = same ? "" : suggestion;
  $("relabel").disabled = same;
  $("held").textContent = held();
  showSimilar(sample.row);
  for (const picture of place.ahead) new Image().src = picture;
  say(`Sample ${sample.id}: label ${label}, suggestion ${suggestion}. ${held()}`);
}

function showProgress() {
  const share = (count) => `${place.total ? (100 * count) / place.total : 0}%`;
  $("bar-decided").style.width = share(place.decided);
  $("bar-skipped").style.width = share(place.skipped);
  $("bar").setAttribute("aria-valuemax", place.total);
  $("bar").setAttribute("aria-valuenow", place.decided);
  const number = (count) => count.toLocaleString("en");
  $("position").textContent = place.position ? `${number(place.position)} of ${number(place.total)}` : `outside these ${number(place.total)}`;
  const { keep: kept, suggestion, other, skip } = place.made;
  const open = place.total - place.decided - place.skipped;
  $("counts").textContent =
    `· ${number(open)} not yet seen · in all: kept ${number(kept)}, suggestion taken ${number(suggestion)}, another class ${number(other)}, skipped ${number(skip)}`;
}

function showPicture() {
  $("picture").hidden = !sample.picture;
  $("features").hidden = !sample.features;
  if (sample.picture) {
    $("picture").src = sample.picture;
    $("picture").alt = `picture of sample ${sample.id}`;
    return;
  }
  $("features").tBodies[0].replaceChildren(...sample.features.map((feature) => {
    const row = document.createElement("tr");
    const value = String(Number(feature.value.toPrecision(4))).replace("-", "−");
    const score = `${feature.score < 0 ? "−" : "+"}${Math.abs(feature.score).toFixed(1)}`;
    for (const text of [feature.number, value, score]) row.insertCell().textContent = text;
    return row;
  }));
}

function meter(name, value, enough, more) {
  const bar = $(`${name}-meter`);
  const known = value !== null;
  bar.firstElementChild.style.width = `${100 * (value ?? 0)}%`;
  bar.lastElementChild.style.left = `calc(${100 * Math.min(enough, 1)}% - 1px)`;
  bar.setAttribute("aria-valuenow", value ?? 0);
  const text = known ? `${words(value)}, ${value.toFixed(2)}` : "not known";
  bar.setAttribute("aria-valuetext", text);
  $(`${name}-words`).textContent = text + more;
}

function words(value) {
  if (value >= 0.9) return "reliable";
  if (value >= 0.5) return "fairly reliable";
  return value >= 0.1 ? "hardly reliable" : "not reliable";
}

function held() {
  if (!sample.held) return "";
  const { action, label } = sample.held;
  if (action === "skip") return "You skipped it.";
  return action === "keep" ? "You kept the label." : `You relabelled it: ${label}.`;
}

function say(text, visibly = false) {
  $("status").textContent = text;
  if (visibly) $("held").textContent = [text, sample ? held() : ""].join(" ").trim();
}

async function showSimilar(row) {
  let found;
  try {
    found = await ask(`api/similar/${row}`);
  } catch {
    return; // that the server has gone is told by what the person does next
  }
  if (!sample || sample.row !== row) return;
  $("similar-note").textContent = similarNote(found);
  $("similar").classList.toggle("named", !about.images);
  $("similar").replaceChildren(...(found.rows ?? []).map(neighbour));
  if (!found.rows && !found.problem) setTimeout(() => sample?.row === row && showSimilar(row), POLL);
}

function similarNote(found) {
  if (found.problem) return `None: ${found.problem}`;
  if (!found.rows) return `Looking at the samples once: ${found.done.toLocaleString("en")} of ${found.total.toLocaleString("en")} …`;
  const counts = new Map();
  for (const row of found.rows) counts.set(row.observed, (counts.get(row.observed) ?? 0) + 1);
  const labels = [...counts].sort((one, two) => two[1] - one[1]).map(([label, count]) => `${count} × ${about.classes[label]}`);
  const among = found.total < found.samples ? `, among ${found.total.toLocaleString("en")} of all samples drawn at random` : "";
  return `Labelled ${labels.join(", ")}. Nearest by ${found.by}${among}; their labels may be wrong too.`;
}

function neighbour(other) {
  const item = document.createElement("li");
  if (other.picture) {
    const picture = document.createElement("img");
    picture.src = other.picture;
    picture.alt = "";
    item.append(picture);
  }
  const label = document.createElement("b"), more = document.createElement("span");
  label.textContent = about.classes[other.observed];
  if (other.held !== null) more.textContent = other.held === about.classes[other.observed] ? "you kept it" : `you: ${other.held}`;
  else if (other.decision !== "keep") more.textContent = `perhaps ${about.classes[other.suggested]}`;
  if (!other.picture) more.textContent = `sample ${other.id} ${more.textContent}`;
  item.title = `sample ${other.id}, similarity ${other.cosine.toFixed(3)} (1 is the same)`;
  item.append(label, more);
  return item;
}

// Exporting

async function openExport() {
  const { total, decided, made } = await look({ decision: "relabel", observed: "", state: "all", move: "next" });
  const number = (count) => count.toLocaleString("en");
  $("export-counts").textContent =
    `Labels that you have changed: ${number(made.suggestion + made.other)}. The run's own, which you have not decided: ${number(total - decided)}.`;
  $("export").showModal();
}

// Choosing a class

let matches = [], active = 0;

function openChooser() {
  if (!sample) return;
  $("search").value = "";
  find();
  $("chooser").showModal();
  $("search").focus();
}

function find() {
  const query = $("search").value.trim().toLowerCase(), parts = query.split(/\s+/);
  const names = about.classes.map((name, number) => ({ name: name.toLowerCase(), number }));
  const fits = names.filter(({ name }) => parts.every((part) => name.includes(part)));
  const rank = ({ name }) => [name === query, name.startsWith(query), name.includes(query), true].indexOf(true);
  fits.sort((one, two) => rank(one) - rank(two) || one.number - two.number);
  matches = fits.slice(0, MOST_FOUND).map(({ number }) => number);
  $("found").replaceChildren(...matches.map(option));
  const rest = fits.length - matches.length;
  $("found-more").textContent = rest ? `… and ${rest.toLocaleString("en")} more: type on` : matches.length ? "" : "No class has that in its name.";
  activate(0);
}

function option(number, at) {
  const item = document.createElement("li"), name = document.createElement("span");
  item.id = `option-${at}`;
  item.setAttribute("role", "option");
  name.textContent = about.classes[number];
  item.append(name);
  if (number === sample.observed || number === sample.suggested) {
    const mark = document.createElement("small");
    mark.textContent = number === sample.observed ? "the label" : "the suggestion";
    item.append(mark);
  }
  item.addEventListener("click", () => pick(number));
  return item;
}

function activate(at) {
  active = Math.max(0, Math.min(at, matches.length - 1));
  [...$("found").children].forEach((item, i) => item.setAttribute("aria-selected", i === active));
  $("found").children[active]?.scrollIntoView({ block: "nearest" });
  if (matches.length) $("search").setAttribute("aria-activedescendant", `option-${active}`);
  else $("search").removeAttribute("aria-activedescendant");
}

function pick(number) {
  $("chooser").close();
  doing(() => decide("relabel", number));
}

$("search").addEventListener("input", find);
$("search").addEventListener("keydown", (event) => {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
  if (event.key in steps) activate(active + steps[event.key]);
  else if (event.key === "Enter" && !event.isComposing && matches.length) pick(matches[active]);
  else return;
  event.preventDefault();
});

// Buttons and keys

const actions = {
  keep: () => sample && decide("keep"),
  relabel: () => sample && sample.observed !== sample.suggested && decide("relabel", sample.suggested),
  skip: () => sample && decide("skip"),
  undo,
  previous: () => go("previous"),
  next: () => go("next"),
};
const keys = { k: "keep", r: "relabel", c: "choose", s: "skip", u: "undo", ArrowLeft: "previous", ArrowRight: "next", "?": "help" };

function act(name) {
  if (name === "choose") openChooser();
  else if (name === "help") $("help").showModal();
  else doing(actions[name]);
}

for (const name of [...Object.keys(actions), "choose"]) $(name).addEventListener("click", () => act(name));
$("open-help").addEventListener("click", () => $("help").showModal());
$("open-export").addEventListener("click", () => doing(openExport));
for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => button.closest("dialog").close());

document.addEventListener("keydown", (event) => {
  const name = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  const writing = event.target.closest("input, select, dialog") || document.querySelector("dialog[open]");
  if (!name || writing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (!$("letters").checked && name !== "help") return;
  event.preventDefault();
  if (event.repeat && name !== "previous" && name !== "next") return; // a key held down decides once
  act(name);
});

for (const name of ["decision", "observed", "state"]) {
  $(name).addEventListener("change", () => {
    keep(sessionStorage, name, $(name).value);
    $(name).blur(); // so that the keys are about the sample again
    doing(begin);
  });
}
$("filters").addEventListener("submit", (event) => event.preventDefault());
$("letters").checked = stored(localStorage, "letters", "on") === "on";
$("letters").addEventListener("change", () => keep(localStorage, "letters", $("letters").checked ? "on" : "off"));

// Another tab may have decided meanwhile. A key that is pressed before the answer is here goes first.
document.addEventListener("visibilitychange", async () => {
  if (document.hidden || busy || !sample) return;
  const row = sample.row, found = await look({ row, move: "here" }).catch(() => null);
  if (found && !busy && sample?.row === row) show(found);
});

doing(async () => {
  history.replaceState(null, "", "/"); // the token is in the cookie now
  about = await ask("api/about");
  $("run").textContent = about.run;
  document.title = `${about.run}: labeltrace review`;
  for (const [name, text] of Object.entries(DECISIONS)) $("decision").add(new Option(`${text} (${about.decisions[name].toLocaleString("en")})`, name));
  about.classes.forEach((name, number) => $("observed").add(new Option(name, number)));
  for (const name of ["decision", "observed", "state"]) {
    const wanted = stored(sessionStorage, name, null);
    if (wanted !== null) $(name).value = wanted;
    if ($(name).selectedIndex < 0) $(name).selectedIndex = 0;
  }
  const row = Number.parseInt(stored(sessionStorage, "row", ""), 10);
  if (row < about.decisions.all) show(await look({ row, move: "here" }));
  else await begin();
});
