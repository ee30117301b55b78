// The dashboard. Every text of the cluster becomes a text node, never markup.

const groups = [
  ["needs-user", "needUser", "!", "Needs you"],
  ["rolling-back", "rollingBack", "↩", "Rolling back"],
  ["advancing", "advancing", "▶", "Advancing"],
  ["queued", "queued", "…", "Queued"],
  ["failed", "failed", "✕", "Failed"],
  ["idle", "idle", "✓", "Idle"],
];
const groupOf = Object.fromEntries(groups.map(([id, , icon, word]) => [id, { icon, word }]));

// --- Elements

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return node;
}

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.flat(Infinity));
  return node;
}

const $ = (id) => document.getElementById(id);
const main = $("main");

function announce(text) { $("announcement").textContent = text; }

// While a button of the mouse is down, the page must not replace what is under it: the click would be lost.
let isPressed = false;
let deferred = () => {};
addEventListener("pointerdown", () => { isPressed = true; }, true);
for (const end of ["pointerup", "pointercancel"]) {
  addEventListener(end, () => setTimeout(() => {
    isPressed = false;
    const update = deferred;
    deferred = () => {};
    update();
  }), true);
}

// whenReleased calls the last function that it received as soon as no button of the mouse is down.
function whenReleased(update) {
  if (isPressed) deferred = update; else update();
}

// --- Time

let clockOffset = 0; // the time of the server minus that of the browser
const now = () => Date.now() + clockOffset;

function duration(milliseconds) {
  const seconds = Math.max(0, Math.ceil(milliseconds / 1000));
  if (seconds < 60) return seconds + "s";
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return minutes + "m" + (seconds % 60 ? (seconds % 60) + "s" : "");
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return hours + "h" + (minutes % 60 ? (minutes % 60) + "m" : "");
  return Math.floor(hours / 24) + "d" + (hours % 24 ? (hours % 24) + "h" : "");
}

// atRest is the state of a release of which nothing is in progress: see release.State.
const atRest = "at-rest";

const clock = (time) => new Date(time).toISOString().slice(11, 19) + "Z";
const date = (time) => (time ? new Date(time).toISOString().slice(0, 16).replace("T", " ") + "Z" : "-");

// timer returns an element whose text follows the time: a countdown to a time, or the time since one.
function timer(time, { since = false, prefix = "", className = "" } = {}) {
  const node = el("time", { datetime: time, class: className, title: time });
  node.dataset[since ? "since" : "until"] = time;
  node.dataset.prefix = prefix;
  tick(node);
  return node;
}

function tick(node) {
  const { since, until, prefix } = node.dataset;
  const left = until ? Date.parse(until) - now() : now() - Date.parse(since) - 999;
  const text = until && left <= 0 ? "now" : prefix + duration(left);
  if (node.textContent !== text) node.textContent = text;
}

setInterval(() => {
  for (const node of document.querySelectorAll("time[data-until], time[data-since]")) tick(node);
  showConnection();
}, 1000);

// --- Connection

let source; // the stream of the current page
let status = {};
let isConnected = true, lastHeard = Date.now();

function connect(query, handlers) {
  disconnect();
  const own = (source = new EventSource("/api/v1/stream" + query));
  const receive = (handle) => (event) => {
    const document = JSON.parse(event.data);
    isConnected = true;
    lastHeard = Date.now();
    handle(document);
  };
  own.addEventListener("heartbeat", receive(setStatus));
  for (const [name, handle] of Object.entries(handlers)) own.addEventListener(name, receive(handle));
  own.addEventListener("error", async () => {
    if (source !== own) return;
    isConnected = false;
    showConnection();
    if (own.readyState !== EventSource.CLOSED) return; // the browser reconnects
    own.close();
    const response = await fetch("/api/v1/session").catch(() => null);
    if (source !== own) return;
    if (response && response.status === 401) return showSignIn();
    setTimeout(() => source === own && connect(query, handlers), 3000);
  });
}

function disconnect() {
  source?.close();
  source = undefined;
}

function setStatus(next) {
  status = next;
  if (next.now) clockOffset = Date.parse(next.now) - Date.now();
  const controller = next.controller ?? {};
  const words = { running: "Controller running", active: "Controller active", "not-found": "No controller found", unknown: "Controller unknown" };
  $("controller").textContent = words[controller.state] ?? "";
  $("controller").title = controller.message ?? "";
  showConnection();
}

function showConnection() {
  const isSilent = source && Date.now() - lastHeard > 40_000;
  const isLost = !isConnected || isSilent || status.lost;
  document.body.classList.toggle("lost", Boolean(isLost));
  const notes = [];
  if (isLost) {
    const age = status.observed ? ` The data are ${duration(now() - Date.parse(status.observed))} old (${clock(status.observed)}).` : "";
    notes.push((status.lost && isConnected ? "" : "The dashboard does not respond.") + age);
  }
  notes.push(...(status.notes ?? []));
  const text = notes.join(" ").trim();
  const banner = $("banner");
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The dashboard does not respond.");
  }
  const isJSON = (response.headers.get("Content-Type") ?? "").startsWith("application/json");
  const document = isJSON ? await response.json() : undefined;
  if (response.status === 401) showSignIn(document?.error);
  if (!response.ok) throw new Error(document?.error ?? `The request failed with status ${response.status}.`);
  return document;
}

// --- Pages

function navigate(path) {
  history.pushState(null, "", path);
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-link]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  navigate(link.getAttribute("href"));
});
addEventListener("popstate", () => show());

let leave = () => {}; // ends the current page

function show() {
  leave();
  leave = () => {};
  const parts = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === location.pathname) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (parts.length === 0) return showFleet();
  if (parts[0] === "release" && parts.length >= 4) return showRelease(parts[1], parts[2], parts[3], parts[4]);
  if (parts[0] === "setup") return showSetup();
  disconnect();
  title("Not found");
  main.replaceChildren(el("h1", {}, "Not found"), el("p", {}, "There is no such page. ", el("a", { href: "/", "data-link": true }, "Show all releases"), "."));
}

function title(text) { document.title = text + " · Serin"; }

const pathOf = (r) => `/release/${r.kind.toLowerCase()}/${encodeURIComponent(r.namespace)}/${encodeURIComponent(r.name)}`;
const keyOf = (r) => `${r.namespace}/${r.name}/${r.kind}`;

function showSignIn(problem) {
  disconnect();
  leave();
  leave = () => {};
  isConnected = true; // the dashboard has responded: the viewer is not signed in
  setStatus({});
  title("Sign in");
  if (document.body.dataset.token !== "true") {
    main.replaceChildren(el("div", { class: "panel login" }, el("h1", {}, "You are not signed in"),
      el("p", {}, "Open the link that serin dashboard printed in the terminal. It works once: if it was used, start the command again.")));
    return;
  }
  const input = el("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const error = el("p", { class: "error", role: "alert" }, problem ?? "");
  main.replaceChildren(el("form", { class: "panel login", onsubmit: async (event) => {
    event.preventDefault();
    error.textContent = "";
    const response = await fetch("/api/v1/session", { method: "POST", body: new URLSearchParams({ token: input.value }) }).catch(() => null);
    if (response?.ok) return show();
    error.textContent = (await response?.json().catch(() => null))?.error ?? "The dashboard does not respond.";
  } }, el("h1", {}, "Sign in"),
  el("label", { for: "token" }, "Bearer token for the API server, such as that of: kubectl create token NAME"), input, error, el("button", { class: "primary" }, "Sign in")));
  input.focus();
}

// --- The list of releases

function showFleet() {
  title("Releases");
  const parameters = new URLSearchParams(location.search);
  const filters = { text: parameters.get("q") ?? "", group: parameters.get("group") ?? "", namespace: parameters.get("namespace") ?? "", idle: parameters.get("idle") === "1" };
  const releases = new Map();
  let isComplete = false;

  const search = el("input", { type: "search", "aria-label": "Search releases", placeholder: "Search (/)", value: filters.text });
  const namespaces = el("select", { "aria-label": "Namespace" });
  const counters = el("div", { class: "toolbar", role: "group", "aria-label": "Filter by state" });
  const list = el("div", { id: "list", role: "list", "aria-label": "Releases" });
  const empty = el("p", { id: "empty" }, "Loading…");
  main.replaceChildren(el("h1", { class: "hidden" }, "Releases"), counters, el("div", { class: "toolbar" }, search, namespaces), empty, list);

  function store() {
    const next = new URLSearchParams();
    if (filters.text) next.set("q", filters.text);
    if (filters.group) next.set("group", filters.group);
    if (filters.namespace) next.set("namespace", filters.namespace);
    if (filters.idle) next.set("idle", "1");
    history.replaceState(null, "", next.size ? "/?" + next : "/");
    layout();
  }
  search.addEventListener("input", () => { filters.text = search.value; store(); });
  namespaces.addEventListener("change", () => { filters.namespace = namespaces.value; store(); });

  let items = []; // the headings and rows in their order, each with its position
  const nodes = new Map(); // the elements of the visible items

  function matches(r) {
    if (filters.group && r.group !== filters.group) return false;
    if (filters.namespace && r.namespace !== filters.namespace) return false;
    const text = filters.text.trim().toLowerCase();
    return !text || [r.name, r.namespace, r.kind, r.phase, r.text, ...(r.images?.new ?? []), ...(r.images?.old ?? [])].some((part) => part?.toLowerCase().includes(text));
  }

  function layoutIfOpen() { if (list.isConnected) layout(); }

  function layout() {
    const rowHeight = parseInt(getComputedStyle(document.documentElement).getPropertyValue("--row"), 10);
    const byGroup = new Map(groups.map(([id]) => [id, []]));
    for (const r of releases.values()) if (matches(r)) byGroup.get(r.group)?.push(r);
    items = [];
    let top = 0, shown = 0;
    for (const [id] of groups) {
      const members = byGroup.get(id);
      if (!members.length) continue;
      members.sort(compareWithinGroup);
      const isFolded = id === "idle" && !filters.idle && !filters.group && !filters.text;
      items.push({ key: "group " + id, group: id, count: members.length, isFolded, top, height: 40 });
      top += 40;
      if (isFolded) continue;
      for (const r of members) {
        items.push({ key: keyOf(r), release: r, top, height: rowHeight, position: ++shown });
        top += rowHeight;
      }
    }
    for (const item of items) item.size = shown;
    list.style.height = top + "px";
    empty.hidden = items.length > 0;
    empty.textContent = !isComplete ? "Loading…" : status.lost && !releases.size ? "The releases are not known." : releases.size ? "No release matches the filters." : "There are no releases. Create a Canary or a Rollout, for example with: serin init";
    renderCounters();
    renderVisible();
  }

  function renderCounters() {
    const counts = {};
    for (const r of releases.values()) counts[r.group] = (counts[r.group] ?? 0) + 1;
    const focused = document.activeElement?.dataset?.group;
    counters.replaceChildren(...groups.map(([id, , icon, word]) => el("button", {
      class: "chip " + id, "data-group": id, "aria-pressed": String(filters.group === id),
      onclick: () => { filters.group = filters.group === id ? "" : id; store(); },
    }, el("span", { "aria-hidden": "true" }, icon), `${word} ${counts[id] ?? 0}`)));
    if (focused) counters.querySelector(`[data-group="${focused}"]`)?.focus();
    const known = [...new Set([...releases.values()].map((r) => r.namespace))].sort();
    if (filters.namespace && !known.includes(filters.namespace)) known.push(filters.namespace);
    if (namespaces.dataset.known !== known.join()) {
      namespaces.dataset.known = known.join();
      namespaces.replaceChildren(el("option", { value: "" }, "All namespaces"), ...known.map((name) => el("option", { value: name, selected: name === filters.namespace }, name)));
    }
  }

  // Only the visible part of the list has elements, so that ten thousand releases cost as much as twenty.
  function renderVisible() {
    const above = list.getBoundingClientRect().top, margin = 400;
    const from = -above - margin, to = -above + innerHeight + margin;
    let low = 0, high = items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (items[middle].top + items[middle].height < from) low = middle + 1; else high = middle;
    }
    const visible = new Set();
    let previous = null;
    for (let i = low; i < items.length && items[i].top <= to; i++) {
      const item = items[i];
      visible.add(item.key);
      let known = nodes.get(item.key);
      const content = item.release ?? `${item.count} ${item.isFolded}`;
      if (!known || known.content !== content) {
        const node = item.release ? rowOf(item.release) : headingOf(item);
        if (known) {
          const hadFocus = known.node.contains(document.activeElement);
          known.node.replaceWith(node);
          if (hadFocus) node.querySelector("a, button")?.focus({ preventScroll: true });
        }
        known = { node, content };
        nodes.set(item.key, known);
      }
      known.node.style.top = item.top + "px";
      if (item.release) {
        known.node.setAttribute("aria-setsize", item.size);
        known.node.setAttribute("aria-posinset", item.position);
      }
      if (!known.node.isConnected || known.node.previousSibling !== previous) previous ? previous.after(known.node) : list.prepend(known.node);
      previous = known.node;
    }
    for (const [key, known] of nodes) {
      if (visible.has(key)) continue;
      known.node.remove();
      nodes.delete(key);
    }
  }

  function headingOf(item) {
    const { icon, word } = groupOf[item.group];
    const text = `${word} (${item.count})`;
    const isFoldable = item.group === "idle" && !filters.group && !filters.text;
    return el("div", { role: "listitem" }, el("h2", { class: "group" }, el("span", { class: "chip " + item.group, "aria-hidden": "true" }, icon), isFoldable
      ? el("button", { "aria-expanded": String(!item.isFolded), onclick: () => { filters.idle = item.isFolded; store(); } }, text) : text));
  }

  connect("", {
    fleet(document) {
      if (document.complete) releases.clear();
      for (const r of document.releases) releases.set(keyOf(r), r);
      for (const r of document.removed ?? []) releases.delete(keyOf(r));
      isComplete = true;
      setStatus(document);
      whenReleased(layoutIfOpen);
    },
  });

  const onScroll = () => renderVisible();
  const onResize = () => layout();
  function onKey(event) {
    if (event.target.matches("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) {
      if (event.key === "Escape" && event.target === search) search.blur();
      return;
    }
    if (event.key === "/") { event.preventDefault(); search.focus(); return; }
    if (event.key !== "j" && event.key !== "k") return;
    const rows = items.filter((item) => item.release);
    const current = rows.findIndex((item) => nodes.get(item.key)?.node.contains(document.activeElement));
    const next = rows[Math.min(rows.length - 1, Math.max(0, current + (event.key === "j" ? 1 : -1)))];
    if (!next) return;
    const top = list.getBoundingClientRect().top + next.top;
    if (top < 0 || top + next.height > innerHeight) scrollBy(0, top < 0 ? top - 80 : top + next.height - innerHeight + 80);
    renderVisible();
    nodes.get(next.key)?.node.querySelector("a")?.focus({ preventScroll: true });
  }
  addEventListener("scroll", onScroll, { passive: true });
  addEventListener("resize", onResize);
  addEventListener("keydown", onKey);
  leave = () => {
    removeEventListener("scroll", onScroll);
    removeEventListener("resize", onResize);
    removeEventListener("keydown", onKey);
  };
}

function compareWithinGroup(a, b) {
  const place = (r) => r.place?.position ?? Infinity;
  if (place(a) !== place(b)) return place(a) - place(b);
  if (a.group !== "idle" && a.group !== "failed" && a.since !== b.since) return (a.since ?? "~") < (b.since ?? "~") ? -1 : 1;
  return keyOf(a) < keyOf(b) ? -1 : 1;
}

const tagOf = (image) => image.replace(/@sha256:([0-9a-f]{8}).*/, "@$1").replace(/^.*\//, "");

// imagesText names what changes between two revisions: tags if the names are equal.
function imagesText(images) {
  const before = (images?.old ?? []).map(tagOf), after = (images?.new ?? []).map(tagOf);
  if (!before.length || before.join() === after.join()) return after.join(", ");
  if (!after.length) return before.join(", ");
  const changed = after.filter((image) => !before.includes(image));
  return (before.filter((image) => !after.includes(image)).join(", ") || before.join(", ")) + " → " + (changed.join(", ") || after.join(", "));
}

function rowOf(r) {
  const { icon, word } = groupOf[r.group];
  const checks = (r.checks ?? []).map((check) => ({ pass: "✓ ", fail: "✕ " }[check.verdict] ?? "… ") + check.name).join("  ");
  const progress = r.totalSteps && r.group !== "idle" && r.group !== "failed" ? `step ${r.step || 0} of ${r.totalSteps}` : r.mirrored ? "mirror" : r.group === "idle" || r.group === "failed" ? "" : r.weight + "%";
  return el("div", { role: "listitem" }, el("a", { class: "row", href: pathOf(r), "data-link": true },
    el("span", { class: "chip " + r.group }, el("span", { "aria-hidden": "true" }, icon), r.phase || word),
    el("span", {}, el("span", { class: "name clip two" }, r.name), el("span", { class: "muted clip two" }, `${r.namespace} · ${r.kind}`)),
    el("span", { class: "images mono two" }, imagesText(r.images)),
    el("span", { class: "ladder" }, r.group === "idle" || r.group === "failed" ? "" : ladder(r), el("span", { class: "muted" }, progress)),
    el("span", { class: "why" }, el("span", { class: "two" }, r.text), checks && el("span", { class: "muted clip two" }, checks)),
    r.place ? el("span", { class: "countdown" }, `${r.place.position} of ${r.place.waiting}`) : r.until ? timer(r.until, { className: "countdown" }) : r.since ? timer(r.since, { since: true, className: "countdown muted" }) : el("span")));
}

// ladder draws the weight with the weights of the remaining steps as ticks.
function ladder(r) {
  const label = `${r.weight}% of the requests`;
  return svg("svg", { viewBox: "0 0 180 12", width: 180, height: 12, role: "img", "aria-label": label },
    svg("rect", { class: "track", x: 0, y: 2, width: 180, height: 8, rx: 4 }),
    svg("rect", { class: "bar", x: 0, y: 2, width: Math.max(0, Math.min(100, r.weight)) * 1.8, height: 8, rx: 4 }),
    [...new Set(r.weights ?? [])].filter((weight) => weight > 0 && weight < 100).map((weight) => svg("line", { class: "tick", x1: weight * 1.8, x2: weight * 1.8, y1: 1, y2: 11 })));
}

// --- One release

function showRelease(kind, namespace, name, part) {
  title(name);
  const base = `/api/v1/releases/${kind}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
  const page = pathOf({ kind, namespace, name });
  let detail, permission = { known: false, missing: [] }, isOpen = true;
  const opened = new Set(); // the parts that the user has unfolded
  main.replaceChildren(el("p", {}, "Loading…"));

  async function review() {
    const found = await request(base + "/can").catch((problem) => ({ error: problem.message }));
    permission = { known: !found.error, missing: found.missing ?? [], error: found.error };
    whenReleased(render);
  }
  review();
  const onVisible = () => { if (!document.hidden) review(); }; // the permissions may have changed meanwhile
  document.addEventListener("visibilitychange", onVisible);
  leave = () => {
    isOpen = false;
    document.removeEventListener("visibilitychange", onVisible);
  };
  connect(`?release=${encodeURIComponent(`${kind}/${namespace}/${name}`)}`, {
    release(document) {
      detail = document;
      setStatus(document.status);
      whenReleased(render);
    },
  });

  function render() {
    if (!detail || !isOpen) return;
    if (detail.gone) {
      main.replaceChildren(el("h1", {}, name), el("p", {}, `There is no ${kind} ${name} in namespace ${namespace}, or it was deleted. `, el("a", { href: "/", "data-link": true }, "Show all releases"), "."));
      return;
    }
    const focused = document.activeElement?.id, scroll = scrollY;
    const r = detail.release, fleet = detail.fleet, { icon, word } = groupOf[fleet.group];
    const head = [
      el("p", { class: "noprint" }, el("a", { href: "/", "data-link": true }, "← Releases")),
      el("h1", {}, r.name, " ", el("span", { class: "chip " + fleet.group }, el("span", { "aria-hidden": "true" }, icon), word)),
      el("p", { class: "muted" }, [`${r.kind} in namespace ${r.namespace}`, r.target, r.strategy, r.provider, imagesText(fleet.images)].filter(Boolean).join(" · ")),
      el("nav", { class: "toolbar noprint", "aria-label": "Parts of the release" }, [["", "Overview"], ["analysis", "Analysis"], ["report", "Report"], ["check", "Check"]].map(([id, text]) =>
        el("a", { href: page + (id && "/" + id), "data-link": true, "aria-current": (part ?? "") === id && "page" }, text))),
    ];
    const body = { analysis: analysisPage, report: reportPage, check: checkPage }[part] ?? overviewPage;
    main.replaceChildren(...head, body(r, fleet));
    if (focused) $(focused)?.focus({ preventScroll: true });
    scrollTo(0, scroll);
  }

  function overviewPage(r, fleet) {
    return el("div", { class: "grid" },
      panel("Why", el("div", { class: "answer" }, sentences(detail.sentences), fleet.end && r.state !== atRest && fleet.group !== "needs-user" && el("p", {}, "Earliest end: ", timer(fleet.end, { prefix: "in " })))),
      panel("Actions", actions(r)),
      panel("Traffic", weightChart(r), "wide"),
      panel("Measurements", measurements(), "wide"),
      panel("Checks", checks(r)),
      panel("Gates", gates(r)),
      panel("Pods", pods(r), "wide"),
      panel("Changes", changes(r)),
      panel("History", pastReleases()),
      panel("Events", events(r), "wide"));
  }

  function actions(r) {
    return el("div", { class: "actions" }, detail.actions.map((action) => {
      const missing = permission.missing.filter((needed) => (action.needs ?? []).includes(needed));
      const isDisabled = !permission.known || missing.length > 0 || Boolean(action.refused);
      const note = action.refused ?? (missing.length ? "Needs " + missing.join(" and ") : action.effect);
      return el("button", {
        id: "action-" + actionWords(action).replaceAll(" ", "-"), disabled: isDisabled, class: !isDisabled && (action.verb === "approve" || (action.verb === "promote" && !action.full)) && "primary",
        onclick: () => order(r, action),
      }, actionWords(action), el("small", {}, sentence(permission.error ? "The permissions are not known: " + permission.error : note, r.name)));
    }));
  }

  function order(r, action) {
    const reason = el("input", { name: "reason", maxlength: 500, autocomplete: "off" });
    const confirmation = el("input", { name: "confirmation", autocomplete: "off" });
    const error = el("p", { class: "error", role: "alert" });
    const submit = el("button", { class: "primary", type: "submit", disabled: action.confirm }, actionWords(action));
    confirmation.addEventListener("input", () => { submit.disabled = confirmation.value !== r.name; });
    const dialog = el("dialog", { "aria-labelledby": "dialog-title" }, el("form", { onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        const result = await request(base + "/orders", {
          method: "POST", headers: { "Content-Type": "application/json" },
          body: JSON.stringify({ verb: action.verb, full: Boolean(action.full), gate: action.gate ?? "", run: action.run ?? "", reason: reason.value }),
        });
        dialog.close();
        announce([`${r.name} ${result.effect}.`, ...(result.warnings ?? [])].join(" "));
        if (result.warnings?.length) alertWarnings(result.warnings);
      } catch (problem) {
        error.textContent = problem.message;
        submit.disabled = false;
        review();
      }
    } }, el("h2", { id: "dialog-title" }, `${actionWords(action)}: ${r.name}`), el("p", {}, sentence(action.effect)),
    el("label", {}, "Reason (recorded in an event)", reason), action.confirm && el("label", {}, `Type ${r.name} to confirm`, confirmation), error,
    el("div", { class: "buttons" }, el("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), submit)));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  function alertWarnings(warnings) {
    const dialog = el("dialog", {}, el("h2", {}, "The command was sent"), warnings.map((text) => el("p", {}, sentence(text))), el("div", { class: "buttons" }, el("button", { onclick: () => dialog.close() }, "Close")));
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
  }

  function weightChart(r) {
    const points = detail.weights ?? [], future = r.steps ?? [];
    if (!points.length || (r.state === atRest && points.length < 2)) return el("p", { class: "muted" }, "No release is in progress.");
    const width = Math.min(900, Math.max(280, main.clientWidth - 58)); // on a phone that of the panel, so that texts are not scaled
    const height = 170, left = 40, right = 12, top = 10, bottom = 24, current = now();
    const start = Date.parse(points[0].at), end = Math.max(current, ...future.map((step) => Date.parse(step.at)), start + 1000);
    const x = (time) => left + (time - start) / (end - start) * (width - left - right);
    const y = (weight) => top + (100 - weight) / 100 * (height - top - bottom);
    const nowLabel = Math.min(Math.max(x(current), left + 70), width - right - 84);
    let path = `M${x(start)},${y(points[0].weight)}`;
    for (const point of points.slice(1)) path += `H${x(Date.parse(point.at))}V${y(point.weight)}`;
    path += `H${x(current)}`;
    let ghost = `M${x(current)},${y(r.weight)}`;
    for (const step of future) ghost += `H${x(Math.max(current, Date.parse(step.at)))}V${y(step.weight)}`;
    return [svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `The new revision receives ${r.weight}% of the requests` },
      [0, 50, 100].map((weight) => [svg("line", { class: "axis", x1: left, x2: width - right, y1: y(weight), y2: y(weight) }), svg("text", { x: 4, y: y(weight) + 4 }, weight + "%")]),
      svg("line", { class: "now", x1: x(current), x2: x(current), y1: top, y2: height - bottom }),
      svg("path", { class: "line", d: path }), future.length ? svg("path", { class: "ghost", d: ghost }) : [],
      svg("text", { x: left, y: height - 6 }, clock(start)), svg("text", { x: nowLabel, y: height - 6 }, "now " + clock(current)),
      nowLabel + 90 < width - 70 ? svg("text", { x: width - 70, y: height - 6 }, clock(end)) : []),
    el("p", { class: "muted" }, `Solid: the weight of the ${r.kind === "Canary" ? "canary" : "new revision"} since the dashboard first observed it. Dashed: the remaining steps if nothing fails.`)];
  }

  function checks(r) {
    const rows = (r.gates ?? []).filter((gate) => gate.check);
    if (!rows.length) return el("p", { class: "muted" }, "No check is evaluated now.");
    return table(["Check", "Value", "Limit", "Last verdict"], rows.map((gate) => [gate.name, gate.value || "no data", gate.limit || "-", verdict(gate.last || gate.verdict)]));
  }

  function gates(r) {
    const rows = (r.gates ?? []).filter((gate) => !gate.check);
    if (!rows.length) return el("p", { class: "muted" }, "The release waits for nothing.");
    return table(["Gate", "State", "For"], rows.map((gate) => [
      gate.name, [verdict(gate.verdict === "pass" && gate.opener === "person" ? "notice" : gate.verdict), " ", gate.message ?? "", gate.until && gate.verdict !== "pass" ? [" ", timer(gate.until, { prefix: "in " })] : "", gate.do && el("pre", {}, gate.do)],
      gate.since ? timer(gate.since, { since: true }) : "-",
    ]));
  }

  function pods(r) {
    const revisions = r.tree?.revisions ?? [];
    if (!revisions.length) return el("p", { class: "muted" }, (r.tree?.unread ?? []).join(" ") || "No pods are known.");
    return el("div", { class: "lanes" }, revisions.map((revision) => el("div", {},
      el("strong", {}, revision.roles.join(", ")), " ", el("span", { class: "mono" }, (revision.images ?? []).map(tagOf).join(", ")), " ",
      el("span", { class: "muted" }, weights(revision)),
      revision.missing && el("span", { class: "error" }, " does not exist"), revision.reason && el("p", { class: "muted" }, sentence(revision.reason)),
      workloads(revision.workloads).map((w) => el("div", {}, el("span", { class: "muted" }, `${w.kind} ${w.name}: ${w.ready} of ${w.desired} pods ready`), w.failure && el("p", { class: "error" }, w.failure),
        el("div", { class: "pods" }, (w.pods ?? []).slice(0, 60).map((pod) => el("span", { class: "pod" + (pod.reason ? " problem" : pod.ready ? " ready" : "") },
          `${pod.reason ? "✕" : pod.ready ? "✓" : "…"} ${pod.name}${pod.deleting ? " (terminating)" : ""}${pod.restarts ? ` (${pod.restarts} restarts)` : ""}`,
          pod.reason && `: ${pod.reason}${pod.message ? ": " + pod.message : ""}`))))))),
    (r.tree.unread ?? []).map((text) => el("p", { class: "muted" }, text)));
  }

  const workloads = (all = []) => all.flatMap((w) => (w.replicaSets?.length ? w.replicaSets : [w]));

  // The same words as in the tree of serin get.
  function weights(revision) {
    const parts = [];
    if (revision.desiredWeight !== undefined) parts.push(`weight ${revision.desiredWeight}% desired`);
    if (revision.servedWeight !== undefined) parts.push(`${revision.servedWeight}% ${served(revision)}`);
    if (revision.mirrored) parts.push("mirrored requests");
    return parts.join(", ");
  }

  function served(revision) {
    if (revision.servedBy === "pods") return "of the available pods";
    if (revision.servedBy === "service") return "served by the active Service";
    if (revision.confirmed === undefined) return "in the route";
    return revision.confirmed ? "served (confirmed by the router)" : "in the route (not confirmed by the router)";
  }

  function changes(r) {
    const rows = r.tree?.changes ?? [];
    if (!rows.length) return el("p", { class: "muted" }, "The revisions have the same pod template, or one of them is not known.");
    return table(["Part", "Change"], rows.map((change) => [change.path, change.old || change.new ? `${change.old ?? "-"} → ${change.new ?? "-"}` : change.kind]));
  }

  function pastReleases() {
    if (!detail.history?.length) return el("p", { class: "muted" }, "No earlier release is known.");
    return table(["Revision", "Images", "Start", "Result"], detail.history.slice(0, 10).map((past) => [
      shortHash(past.revision), (past.images ?? []).map(tagOf).join(", "), date(past.start),
      [past.result || "-", past.cause && el("div", { class: "muted" }, past.cause.message ?? "", past.cause.value && ` (value ${past.cause.value}, limit ${past.cause.limit})`), past.command && el("div", { class: "muted" }, past.command, past.commandBy && ` requested by ${past.commandBy}`)],
    ]));
  }

  function events(r) {
    if (!r.events?.length) return el("p", { class: "muted" }, "There are no events, or Kubernetes has deleted them.");
    return table(["Time", "Type", "Message"], r.events.toReversed().map((event) => [clock(event.at), event.byUser ? "User" : event.type, event.message + (event.count > 1 ? ` (${event.count} times${event.firstAt ? " since " + date(event.firstAt) : ""})` : "")]));
  }

  // fold is a part that the user unfolds. It remains unfolded when the page is rendered again.
  function fold(id, summary, ...content) {
    return el("details", { open: opened.has(id), ontoggle: (event) => (event.target.open ? opened.add(id) : opened.delete(id)) }, el("summary", { id: "fold-" + id }, summary), content);
  }

  const versionWords = { new: "new version", stable: "stable version" };
  const versionOf = (s) => versionWords[s.version] ?? "the version in its query";

  // measurements draws one chart for each subject, with both versions if the checks measure both.
  function measurements() {
    const subjects = Map.groupBy(detail.measurements ?? [], (s) => s.subject + " " + (s.unit ?? ""));
    if (!subjects.size) return el("p", { class: "muted" }, "No check has been measured since the dashboard first observed the release.");
    const start = Date.parse(detail.weights?.[0]?.at ?? detail.status.now);
    return el("div", { class: "grid charts" }, [...subjects.values()].map((all, i) => {
      const lines = [...Map.groupBy(all, (s) => s.version ?? "").values()].sort((a, b) => (a[0].version ?? "") < (b[0].version ?? "") ? -1 : 1);
      const limits = [...new Set(all.map((s) => s.limit).filter(Boolean))], queries = [...new Map(all.filter((s) => s.query).map((s) => [s.query, s])).values()];
      const rows = all.flatMap((s) => s.points.map((point) => ({ ...point, series: s }))).sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, 50);
      return el("figure", {},
        el("figcaption", {}, el("strong", {}, all[0].subject), limits.length > 0 && el("span", { class: "muted" }, " limit: " + limits.join("; "))),
        el("p", { class: "legend" }, lines.map((line) => el("span", {}, svg("svg", { width: 28, height: 10, "aria-hidden": "true" }, svg("line", { class: lineClass(line[0]), x1: 0, x2: 28, y1: 5, y2: 5 })),
          ` ${versionOf(line[0])}: ${lastValue(line)}`))),
        chart(all[0].subject, lines, start),
        fold("values-" + i, "Values", table(["Time", "Version", "Value", "Verdict"], rows.map((row) => [clock(row.at), versionOf(row.series), row.value || row.message || "no data", verdict(row.verdict)]))),
        queries.length > 0 && fold("query-" + i, queries.length > 1 ? "Queries" : "Query", queries.map(queryText)));
    }));
  }

  const lineClass = (s) => (s.version === "stable" ? "line stable" : "line");
  const lastValue = (line) => { const point = line.flatMap((s) => s.points).sort((a, b) => (a.at < b.at ? -1 : 1)).at(-1); return point?.value || "no data"; };

  function queryText(s) {
    return [el("pre", { tabindex: 0 }, s.query), el("button", { "aria-label": `Copy the query of ${s.name}`, onclick: () => copy(s.query) }, "Copy the query")];
  }

  function copy(text) {
    const failed = () => announce("The browser does not permit copying: select the query and copy it.");
    if (!navigator.clipboard) return failed();
    navigator.clipboard.writeText(text).then(() => announce("The query was copied."), failed);
  }

  function analysisPage() {
    const series = detail.measurements ?? [];
    if (!series.length) return el("p", {}, "No measurement is known. Those of a Canary are shown since the dashboard has observed it, and those of a Rollout while its AnalysisRuns exist.");
    return el("div", { class: "grid" }, series.map((s) => panel(s.run ? `${s.name} (AnalysisRun ${s.run})` : s.name, [
      el("p", { class: "muted" }, s.limit ? "Limit: " + s.limit : "The check has no limit."), chart(s.name, [[s]], Date.parse(s.points[0]?.at ?? detail.status.now)),
      s.query && [el("p", { class: "muted" }, "Query:"), queryText(s)],
      table(["Time", "Value", "Verdict"], s.points.toReversed().slice(0, 20).map((point) => [clock(point.at), point.value || point.message || "no data", verdict(point.verdict)])),
    ])));
  }

  // chart draws lines, each of which consists of the series of one version, from a time until now. Points without a number are gaps,
  // and so is the time between two AnalysisRuns.
  function chart(name, lines, start) {
    const series = lines.flat(), unit = series[0].unit ?? "";
    const times = series.flatMap((s) => s.points.map((point) => Date.parse(point.at)));
    const numbers = series.flatMap((s) => s.points.filter((point) => point.number !== undefined).map((point) => point.number));
    if (!numbers.length) return el("p", { class: "muted" }, times.length ? "No value is a number." : "There is no value yet.");
    const bounds = [...new Set(series.flatMap((s) => s.bounds ?? []))];
    let lowest = Math.min(...numbers, ...bounds), highest = Math.max(...numbers, ...bounds);
    const room = (highest - lowest || Math.abs(highest) || 1) * 0.08;
    lowest -= room; highest += room;
    const width = 420, height = 140, left = 8, right = 66, top = 10, bottom = 20;
    const first = Math.min(start, ...times), end = Math.max(...times, first + 1000);
    const x = (at) => left + (Date.parse(at) - first) / (end - first) * (width - left - right);
    const y = (value) => top + (highest - value) / (highest - lowest) * (height - top - bottom);
    const text = (value) => (unit === "s" && Math.abs(value) < 1 ? round(value * 1000) + "ms" : round(value) + unit);
    const marks = [];
    for (const s of series) {
      let path = "", isGap = true;
      for (const point of s.points) {
        if (point.number === undefined) {
          isGap = true;
          marks.push(svg("text", { class: "nodata", x: x(point.at) - 3, y: height - bottom - 2 }, "?"));
          continue;
        }
        path += `${isGap ? "M" : "L"}${x(point.at)},${y(point.number)}`;
        isGap = false;
        marks.push(point.verdict === "fail"
          ? svg("path", { class: "failpoint", d: `M${x(point.at) - 4},${y(point.number) - 4}l8,8m0,-8l-8,8` })
          : svg("circle", { class: "pass", cx: x(point.at), cy: y(point.number), r: 2.5 }));
      }
      if (path) marks.unshift(svg("path", { class: lineClass(s), d: path }));
    }
    const label = lines.map((line) => `${versionOf(line[0])}: ${line.reduce((n, s) => n + s.points.length, 0)} values, the last one ${lastValue(line)}`).join("; ");
    return svg("svg", { class: "measured", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${name}, ${label}. The values are in a table.` },
      bounds.map((bound) => [svg("line", { class: "limit", x1: left, x2: width - right, y1: y(bound), y2: y(bound) }), svg("text", { x: width - right + 4, y: y(bound) + 4 }, text(bound))]),
      svg("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }), marks,
      svg("text", { x: left, y: height - 4 }, clock(first)), svg("text", { x: width - right - 52, y: height - 4 }, clock(end)));
  }

  const round = (value) => String(Number(value.toPrecision(3)));

  function reportPage(r) {
    return el("div", { class: "grid" },
      panel("Report", [el("div", { class: "toolbar noprint" }, el("button", { onclick: () => print() }, "Print"), el("a", { href: base + "/report.md", download: `${namespace}-${name}.md` }, "Markdown for a pull request")),
        el("div", { class: "answer" }, sentences(detail.sentences))], "wide"),
      panel("Releases", pastReleases(), "wide"), panel("Checks", checks(r), "wide"), panel("Changes", changes(r), "wide"), panel("Events", events(r), "wide"));
  }

  // The panel is created once, because the page is rendered again while a check is in progress.
  let checkPanel;
  function checkPage() {
    const output = el("div", { class: "grid" }, el("p", { class: "muted" }, "Checks the cluster and this release, as serin check does."));
    return (checkPanel ??= panel("Check", [el("div", { class: "toolbar" }, el("button", { id: "run-check", onclick: async (event) => {
      const button = event.currentTarget;
      button.disabled = true;
      try {
        output.replaceChildren(...checkSections(await request(base + "/check")));
      } catch (problem) {
        output.replaceChildren(el("p", { class: "error" }, problem.message));
      }
      button.disabled = false;
    } }, "Check now")), output], "wide"));
  }
}

const actionWords = (action) => {
  const words = { promote: action.full ? "Promote fully" : "Promote", abort: "Abort", retry: "Retry", pause: "Pause", resume: "Resume", approve: "Approve", deny: "Deny", undo: "Undo", restart: "Restart" };
  return (words[action.verb] ?? action.verb) + (action.gate ? " " + action.gate : "");
};

const shortHash = (revision = "") => (revision.length > 12 ? el("abbr", { title: revision }, revision.slice(0, 11)) : revision);

// sentence returns a text as a sentence. A name at its beginning remains as it is.
const sentence = (text = "", name = "") => (text ? (name && text.startsWith(name + " ") ? text : text[0].toUpperCase() + text.slice(1)) + (/[.!?]$/.test(text) ? "" : ".") : "");

// sentences renders an explanation: a line that begins with two blanks is a command or a query.
function sentences(all = []) {
  return all.map((text) => (text.startsWith("  ") ? el("pre", {}, text.trim()) : el("p", {}, liveText(text))));
}

// liveText replaces the durations in a sentence, which was true at the time of the server, by timers.
function liveText(text) {
  const parts = [], pattern = /(\bin |\bfor |Z \()((?:\d+[dhms])+)(?= \(|\))/g;
  const units = { d: 86400, h: 3600, m: 60, s: 1 };
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    let seconds = 0;
    for (const [, count, unit] of match[2].matchAll(/(\d+)([dhms])/g)) seconds += count * units[unit];
    const since = match[1] !== "in ", at = new Date(now() + (since ? -1000 : 1000) * seconds).toISOString();
    parts.push(text.slice(end, match.index) + match[1], timer(at, { since }));
    end = match.index + match[0].length;
  }
  return [...parts, text.slice(end)];
}

function panel(heading, content, className = "") {
  return el("section", { class: "panel " + className }, el("h2", {}, heading), content);
}

// longTexts are the headings of the columns with texts that may be long. Only these are narrowed below their longest word.
const longTexts = new Set(["State", "Message", "Result", "Part", "Change", "Value"]);

function table(heads, rows) {
  const firstLong = heads.findIndex((head) => longTexts.has(head));
  const cell = (content, i) => el("td", { class: longTexts.has(heads[i]) && "long", "data-head": firstLong >= 0 && i > firstLong && !longTexts.has(heads[i]) && heads[i] }, content);
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": heads.join(", ") }, el("table", { class: firstLong >= 0 && "stacked" },
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))), el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell))))));
}

function verdict(word) {
  const [icon, className] = { pass: ["✓", "idle"], fail: ["✕", "failed"], wait: ["…", "advancing"], ask: ["?", "advancing"], notice: ["!", "needs-user"] }[word] ?? ["", ""];
  return word ? el("span", { class: "chip " + className }, el("span", { "aria-hidden": "true" }, icon), word) : "-";
}

function checkStatus(status) {
  const [icon, className] = { passed: ["✓", "idle"], failed: ["✕", "failed"], warning: ["!", "needs-user"] }[status] ?? ["–", "queued"];
  return el("span", { class: "chip " + className }, el("span", { "aria-hidden": "true" }, icon), status);
}

// --- Setup

function showSetup() {
  title("Setup");
  const queue = el("div", {}, el("p", { class: "muted" }, "Loading…")), controllers = el("div", {}, el("p", { class: "muted" }, "Loading…"));
  const output = el("div", { class: "grid" }, el("p", { class: "muted" }, "Checking…"));
  const run = el("button", { onclick: check }, "Check again");
  connect("?queue", {
    queue(document) {
      setStatus(document);
      whenReleased(() => queue.isConnected && queue.replaceChildren(...queueParts(document)));
    },
  });
  main.replaceChildren(el("h1", {}, "Setup"), el("div", { class: "grid" }, panel("Queue", queue, "wide"), panel("Controller", controllers, "wide")),
    el("p", {}, "What Serin needs in this cluster, as serin check reports it."), el("div", { class: "toolbar" }, run), output, el("p", { class: "muted" }, `Dashboard: Serin ${document.body.dataset.version}`));
  const failed = (problem) => el("p", { class: "error" }, problem.message);
  async function check() {
    run.disabled = true;
    const [checked, found] = await Promise.allSettled([request("/api/v1/check"), request("/api/v1/controllers")]);
    output.replaceChildren(...(checked.reason ? [failed(checked.reason)] : checkSections(checked.value)));
    controllers.replaceChildren(...(found.reason ? [failed(found.reason)] : controllerParts(found.value)));
    run.disabled = false;
  }
  check();
}

const maxQueueRows = 100;

function queueParts(queue) {
  const limits = [queue.limit && `at most ${queue.limit} in the cluster`, queue.namespaceLimit && `at most ${queue.namespaceLimit} in each namespace`].filter(Boolean).join(", ");
  const link = (r) => el("a", { href: pathOf(r), "data-link": true }, r.name);
  const rest = (all) => all.length > maxQueueRows && el("p", { class: "muted" }, `and ${all.length - maxQueueRows} more`);
  return [
    el("p", {}, `${queue.inProgress.length} in progress${limits ? ` (${limits})` : ""}, ${queue.waiting.length} waiting.`),
    queue.inProgress.length > 0 && el("div", {}, el("h3", {}, "In progress"), table(["Release", "Namespace", "Kind"], queue.inProgress.slice(0, maxQueueRows).map((r) => [link(r), r.namespace, r.kind])), rest(queue.inProgress)),
    queue.waiting.length > 0 && el("div", {}, el("h3", {}, "Waiting"), table(["Position", "Release", "Namespace", "Kind", "Waits for", "Priority"],
      queue.waiting.slice(0, maxQueueRows).map((r) => [String(r.position || (limits ? "starts now" : "-")), link(r), r.namespace, r.kind, r.since ? timer(r.since, { since: true }) : "-", String(r.priority ?? 0)])), rest(queue.waiting)),
  ].filter(Boolean);
}

function controllerParts({ controllers, unread }) {
  const parts = controllers.map((found) => el("div", {},
    el("h3", {}, found.source), el("p", {}, [found.image && `Image ${found.image}`, found.image && `${found.ready ?? 0} pods ready`,
      `releases in progress: ${found.limit ? "at most " + found.limit : "no limit"}, in each namespace: ${found.namespaceLimit ? "at most " + found.namespaceLimit : "no limit"}`].filter(Boolean).join(" · ")),
    found.flags?.length ? el("pre", { tabindex: 0 }, found.flags.join("\n")) : el("p", { class: "muted" }, "All flags have their default values.")));
  if (!controllers.length) parts.push(el("p", { class: "muted" }, "No Deployment or Lease of Serin was found."));
  if (unread?.length) parts.push(el("p", { class: "muted" }, `No permission to read ${unread.join(" and ")}: an installation may be missing.`));
  return parts;
}

function checkSections(report) {
  return report.sections.map((section) => panel(section.name, section.results.map((result) => el("div", {},
    el("p", {}, checkStatus(result.status), " ", result.check, result.message && el("span", { class: "muted" }, ": " + result.message)),
    result.fix && el("pre", {}, result.fix))), "wide"));
}

$("cluster").textContent = document.body.dataset.cluster;
show();
