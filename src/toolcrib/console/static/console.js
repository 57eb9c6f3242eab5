// The small things every page does: live parts, times, keys, the palette, copying, switches that roll back.
import {follow} from "./live.js";

const REST = 150;
const due = new Map();

// Parts of a page name the events they depend on in `data-live`; they are asked for anew, at most every 150 ms. Not while
// something is sent, whose answer would be lost, nor while an answer stays that offers a way back.
const sent = new Set();
function touched(kind) {
  for (const part of document.querySelectorAll(`[data-live~="${kind}"]`)) if (!due.has(part)) renew(part);
}
function renew(part) {
  due.set(part, setTimeout(() => {
    due.delete(part);
    if ([...sent].some((ctx) => ctx.sourceElement.isConnected)) renew(part);
    else if (part.isConnected && !part.querySelector("[data-stays]")) htmx.trigger(part, "live");
  }, REST));
}
document.addEventListener("htmx:before:request", ({detail: {ctx}}) => { if (ctx.request.method !== "GET") sent.add(ctx); });
document.addEventListener("htmx:finally:request", ({detail: {ctx}}) => sent.delete(ctx));
follow("/api/events", Number(document.body.dataset.after), (event) => {
  touched(event.kind);
  if (event.kind === "notice") say(event.message);
});

export function say(text) {
  const said = document.getElementById("said");
  said.textContent = text;
  clearTimeout(said.timer);
  said.timer = setTimeout(() => { said.textContent = ""; }, 6000);
}

// Times: local, and kept current.
function times(root) {
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    if (!("ago" in time.dataset)) time.textContent = at.toLocaleString([], {dateStyle: "medium", timeStyle: "short"});
    else {
      const seconds = Math.max(0, (Date.now() - at) / 1000);
      const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= size) ?? [0, ""];
      time.textContent = size ? `${Math.floor(seconds / size)} ${unit} ago` : "now";
    }
  }
}
times(document);
setInterval(() => times(document), 20000);
document.addEventListener("htmx:after:swap", () => times(document));

// What was refused stays beside its form until something else is sent.
document.addEventListener("htmx:before:request", ({detail: {ctx}}) => {
  if (ctx.request.method !== "GET") document.getElementById("refused")?.replaceChildren();
});

// A form that waits for a call asks every second how far it is.
let watch;
document.addEventListener("htmx:before:request", ({detail: {ctx: {sourceElement: form}}}) => {
  if (!("calls" in form.dataset)) return;
  const running = document.getElementById("running");
  running.replaceChildren("Runs…");
  clearInterval(watch);
  watch = setInterval(() => form.matches("html .htmx-request") ? htmx.trigger(running, "running") : clearInterval(watch), 1000);
});

// The title tells how much waits, in hidden tabs too.
new MutationObserver(() => {
  const waits = /^\s*(\d+)/.exec(document.getElementById("pill").textContent)?.[1];
  document.title = (waits ? `(${waits}) ` : "") + document.title.replace(/^\(\d+\) /, "");
}).observe(document.querySelector(".bar"), {subtree: true, childList: true, characterData: true});

// Copying, opening, closing.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy],[data-open],[data-close]");
  if (!button) return;
  if (button.dataset.open) return show(button.dataset.open);
  if ("close" in button.dataset) return button.closest("dialog").close();
  const from = document.getElementById(button.dataset.copy);
  await navigator.clipboard.writeText(from.value ?? from.textContent);
  say("Copied.");
});

function show(id) {
  const dialog = document.getElementById(id);
  dialog.showModal();
  if (id === "palette") htmx.trigger(dialog.querySelector("input"), "open-palette");
}

// Keys: only those that work here are listed.
let prefix = "";
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input,textarea,select,[contenteditable]");
  if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); return show("palette"); }
  if (event.ctrlKey && event.shiftKey && event.key === "Y") { event.preventDefault(); location.href = "/waiting"; return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "?") return keys();
  if (event.key === "/") { const search = document.querySelector("main input[type=search]"); if (search) { event.preventDefault(); search.focus(); } return; }
  if (event.key === "j" || event.key === "k") return move(event.key === "j" ? 1 : -1);
  const chord = `${prefix} ${event.key}`.trim();
  prefix = event.key === "g" ? "g" : "";
  const target = document.querySelector(`[data-keys="${CSS.escape(chord)}"]`);
  if (target && chord !== "g") { event.preventDefault(); target.click(); }
});

function move(by) {
  const rows = [...document.querySelectorAll("main [data-row] a.name, main a[data-row]")];
  const at = rows.indexOf(document.activeElement);
  rows[Math.min(rows.length - 1, Math.max(0, at + by))]?.focus();
}

function keys() {
  const list = document.querySelector("#keys dl");
  const known = [...document.querySelectorAll("[data-keys]")].map((each) => [each.dataset.keys, each.dataset.keysFor ?? each.textContent.trim()]);
  const rows = [["Ctrl K", "Find"], ["Ctrl Shift Y", "What waits for you"], ["j / k", "Next and previous row"], ["/", "Search on this page"], ["?", "These keys"], ...known];
  list.replaceChildren(...rows.flatMap(([key, word]) => {
    const dt = document.createElement("dt"), kbd = document.createElement("kbd"), dd = document.createElement("dd");
    kbd.textContent = key; dt.append(kbd); dd.textContent = word; return [dt, dd];
  }));
  show("keys");
}

// The palette: arrows choose, Enter goes.
document.getElementById("palette").addEventListener("keydown", (event) => {
  const links = [...document.querySelectorAll("#palette-found a")];
  const at = links.findIndex((link) => link.ariaSelected === "true");
  if (event.key === "Enter") { event.preventDefault(); (links[Math.max(at, 0)])?.click(); }
  if (!["ArrowDown", "ArrowUp"].includes(event.key)) return;
  event.preventDefault();
  links[at] && (links[at].ariaSelected = "false");
  const next = links[(at + (event.key === "ArrowDown" ? 1 : links.length - 1)) % links.length];
  if (next) { next.ariaSelected = "true"; next.scrollIntoView({block: "nearest"}); }
});

// A switch shows its new place at once and goes back, with the reason, if the crib says no.
document.addEventListener("htmx:response:error", undo);
document.addEventListener("htmx:error", undo);
function undo(event) {
  const box = event.target.closest?.("input[type=checkbox]");
  if (box) box.checked = !box.checked;
}
