// Behaviour shared by all pages: live fragments, times, keys, the palette, copying, switches that roll back.
import {follow} from "./live.js";

const REST = 150;
const due = new Map();

// Fragments list the events they depend on in `data-live` and are reloaded at most every 150 ms. Not while a request is
// in flight, whose response would be lost, nor while a response that offers undo is displayed. A check of servers
// (`data-meanwhile`) does not hold them up: each row is filled in when its server responds.
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
document.addEventListener("htmx:before:request", ({detail: {ctx}}) => { if (ctx.request.method !== "GET" && !ctx.sourceElement.closest("[data-meanwhile]")) sent.add(ctx); });
document.addEventListener("htmx:finally:request", ({detail: {ctx}}) => sent.delete(ctx));
follow("/api/events", Number(document.body.dataset.after), (event) => {
  touched(event.kind);
  if (event.kind === "notice") say(event.message);
  if (event.kind === "approval_required") notify(event);
});

// System notifications about approvals, once the user has allowed them: pushed by the crib, also while the console is
// closed, or shown by open tabs where the browser has no push service. All tabs use one tag, so there is one of each.
const allow = document.querySelector("[data-notify]");
let pushed = false;
async function send(path, shape) {
  const answer = await fetch(path, {method: "POST", body: JSON.stringify(shape), headers: {"content-type": "application/json", accept: "application/json"}});
  if (!answer.ok) throw Object.assign(new Error((await answer.json()).message ?? answer.status), {status: answer.status});
  return answer.json();
}
const base64 = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes))).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
async function subscribe() {
  const [{key}] = await Promise.all([send("/notifications/key", {}), navigator.serviceWorker.register("/service-worker.js")]);
  const {pushManager} = await navigator.serviceWorker.ready;
  let subscription = await pushManager.getSubscription();
  if (subscription && base64(subscription.options.applicationServerKey) !== key) { await subscription.unsubscribe(); subscription = null; }
  subscription ??= await pushManager.subscribe({userVisibleOnly: true, applicationServerKey: key});
  await send("/notifications", subscription.toJSON());
  pushed = true;
}
async function renewed() {
  const subscription = await (await navigator.serviceWorker?.getRegistration("/"))?.pushManager?.getSubscription();
  if (!subscription) return false;
  try { await send("/notifications/renew", subscription.toJSON()); } catch (error) {
    if (error.status === 404) await subscription.unsubscribe(); // removed in the console, or signed out since
    return error.status !== 404;
  }
  return true;
}
async function offer() {
  if (!("Notification" in window) || Notification.permission === "denied") return;
  pushed = Notification.permission === "granted" && await renewed();
  allow.hidden = pushed || (Notification.permission === "granted" && localStorage.pushless === "1");
}
if (allow) offer();
allow?.addEventListener("click", async () => {
  if (await Notification.requestPermission() !== "granted") { allow.hidden = Notification.permission === "denied"; return; }
  try { await subscribe(); delete localStorage.pushless; } catch (error) {
    localStorage.pushless = "1";
    say(`Notifications appear while the console is open. Push is not available: ${error.message}`);
  }
  allow.hidden = true;
});
function notify({approvalId, server, tool}) {
  if (pushed || !("Notification" in window) || Notification.permission !== "granted" || document.hasFocus()) return;
  const shown = new Notification("Approval needed", {body: `${server}/${tool}`, tag: approvalId});
  shown.onclick = () => { window.focus(); location.assign("/waiting"); };
}

export function say(text) {
  const toast = document.getElementById("toast");
  toast.textContent = text;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { toast.textContent = ""; }, 6000);
}

// Times: local, and kept current.
function times(root) {
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    if ("timer" in time.dataset) continue;
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
setInterval(() => {
  for (const time of document.querySelectorAll("time[data-timer]")) time.textContent = `${Math.max(0, Math.floor((Date.now() - new Date(time.dateTime)) / 1000))} s`;
}, 1000);
document.addEventListener("htmx:after:swap", () => times(document));

// The chosen project stays in the address of every page that is opened from here.
const project = new URL(location.href).searchParams.get("cwd");
function inProject(address) {
  const url = new URL(address, location.href);
  if (project && url.origin === location.origin && !url.searchParams.has("cwd")) url.searchParams.set("cwd", project);
  return url.href;
}
if (project) {
  document.addEventListener("click", ({target}) => { const link = target.closest?.("a[href^='/']"); if (link) link.href = inProject(link.href); }, true);
  document.addEventListener("submit", ({target, submitter}) => {
    if (target.querySelector("[data-chooses]") || target.method === "dialog") return;
    if (target.method === "post") target.action = inProject(target.action);
    else if (!target.elements.cwd) target.append(Object.assign(document.createElement("input"), {type: "hidden", name: "cwd", value: project}));
    if (submitter?.hasAttribute("formaction")) submitter.formAction = inProject(submitter.formAction);
  }, true);
  document.addEventListener("htmx:config:request", ({detail: {ctx}}) => { ctx.request.action = inProject(ctx.request.action); });
}

// An error stays next to its form until the next request.
document.addEventListener("htmx:before:request", ({detail: {ctx}}) => {
  if (ctx.request.method !== "GET") document.getElementById("refused")?.replaceChildren();
});

// A form that waits for a call polls its progress every second.
let watch;
document.addEventListener("htmx:before:request", ({detail: {ctx: {sourceElement: form}}}) => {
  if (!("calls" in form.dataset)) return;
  const running = document.getElementById("running");
  running.replaceChildren("Running…");
  clearInterval(watch);
  watch = setInterval(() => form.matches("html .htmx-request") ? htmx.trigger(running, "running") : clearInterval(watch), 1000);
});

// The title shows the number of pending requests, in hidden tabs too.
new MutationObserver(() => {
  const waits = /^\s*(\d+)/.exec(document.getElementById("pill").textContent)?.[1];
  document.title = (waits ? `(${waits}) ` : "") + document.title.replace(/^\(\d+\) /, "");
}).observe(document.querySelector(".bar"), {subtree: true, childList: true, characterData: true});

// A call cannot be approved before its collapsed arguments were opened. Opened arguments stay open after a redraw.
const opened = new Set();
const partOf = (details) => `${details.closest("[data-ask]").id} ${details.dataset.part}`;
export function judge(root) {
  for (const details of root.querySelectorAll("[data-ask] details[data-part]")) if (opened.has(partOf(details))) details.open = true;
}
function seen(details) {
  const ask = details.closest("[data-ask]");
  if (!ask || !details.open || details.querySelector("input[name=opened]")) return;
  opened.add(partOf(details));
  const input = document.createElement("input");
  input.type = "hidden"; input.name = "opened"; input.value = details.dataset.part;
  details.append(input);
  const left = [...ask.querySelectorAll("details[data-part]")].filter((each) => !each.querySelector("input[name=opened]")).length;
  const told = ask.querySelector("[data-unseen]");
  told.textContent = left ? `Open ${left} collapsed argument${left === 1 ? "" : "s"} to approve.` : "All arguments opened.";
  if (!left) for (const button of ask.querySelectorAll("[data-approves]")) button.disabled = false;
}
document.addEventListener("toggle", (event) => { if (event.target.matches?.("details[data-part]")) seen(event.target); }, true);
document.addEventListener("htmx:after:swap", () => judge(document));

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

// Keys: only those that work on this page are listed.
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
  const rows = [["Ctrl K", "Find"], ["Ctrl Shift Y", "Waiting for you"], ["j / k", "Next / previous row"], ["/", "Search this page"], ["?", "Keyboard shortcuts"], ...known];
  list.replaceChildren(...rows.flatMap(([key, word]) => {
    const dt = document.createElement("dt"), kbd = document.createElement("kbd"), dd = document.createElement("dd");
    kbd.textContent = key; dt.append(kbd); dd.textContent = word; return [dt, dd];
  }));
  show("keys");
}

// The palette: arrows select, Enter opens.
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

// A switch flips immediately and rolls back, with the reason, if the request fails.
document.addEventListener("htmx:response:error", undo);
document.addEventListener("htmx:error", undo);
function undo(event) {
  const box = event.target.closest?.("input[type=checkbox]");
  if (box) box.checked = !box.checked;
}

// The crib answers a form with a field `live` before a slow server responds: the next page shows the progress.
document.addEventListener("submit", ({target}) => { for (const field of target.querySelectorAll("input[name=live]")) field.value = "yes"; });

// Leaving a page asks if a text that was typed is not saved yet.
const typed = new Set();
document.addEventListener("input", ({target}) => { if (target.matches("form[method=post] textarea")) typed.add(target); });
document.addEventListener("submit", ({target}) => { for (const text of typed) if (target.contains(text)) typed.delete(text); });
addEventListener("beforeunload", (event) => {
  if ([...typed].some((text) => text.isConnected && text.value !== text.defaultValue)) event.preventDefault();
});
