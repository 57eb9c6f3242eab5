// Hosts an MCP App (SEP-1865): answers its messages, forwards its requests to the crib, and stops it if it floods.
const BURST = 200, PER_SECOND = 50, LOWEST = 40, TALLEST = 900, ENDING = 1000, PROBING = 5000;
const VERSION = "2026-01-26";
const failed = (message, code = -32000) => ({error: {code, message}});
const dark = matchMedia("(prefers-color-scheme: dark)");

// Content policies do not cover WebRTC. Resolves to whether `Connection-Allowlist` limits a page in this browser: the same
// page connects without it, and does not with it.
let probed;
const contained = () => probed ??= Promise.all([connects("?open"), connects("")]).then(([open, limited]) => open === true && limited === false);
const connects = (query) => new Promise((resolve) => {
  const frame = document.createElement("iframe");
  Object.assign(frame, {src: `/app-pages/probe${query}`, hidden: true, title: "Probe"});
  frame.sandbox = "allow-scripts";
  const settle = (answer) => { removeEventListener("message", hear); frame.remove(); resolve(answer); };
  const hear = (event) => { if (event.source === frame.contentWindow) settle(event.data?.connected); };
  addEventListener("message", hear);
  setTimeout(settle, PROBING);
  document.body.append(frame);
});

class McpApp extends HTMLElement {
  async connectedCallback() {
    this.frame = this.querySelector("iframe");
    this.link = this.querySelector("[data-link]");
    this.left = BURST;
    this.at = performance.now();
    this.running = new Map();
    this.stop = new AbortController();
    const {signal} = this.stop;
    addEventListener("message", (event) => { if (event.source === this.frame.contentWindow) this.hear(event.data); }, {signal});
    dark.addEventListener("change", () => this.ready && this.post({method: "ui/notifications/host-context-changed", params: {theme: this.theme}}), {signal});
    this.querySelector("[data-end]").addEventListener("click", () => this.tearDown(), {signal});
    this.about = fetch(`/apps/${this.dataset.view}`, {headers: {accept: "application/json"}, signal}).then((answer) => answer.json());
    this.about.catch(() => {});
    this.querySelector("[data-run]").addEventListener("click", () => this.run(), {signal});
    if (await contained()) this.run();
    else this.querySelector("[data-warning]").hidden = false;
  }

  run() {
    this.querySelector("[data-warning]").hidden = true;
    if (!this.ended) this.frame.src = this.frame.dataset.src;
  }

  disconnectedCallback() {
    this.stop.abort();
    for (const each of this.running.values()) each.abort();
  }

  get theme() { return dark.matches ? "dark" : "light"; }

  // The frame has an opaque origin, so no other target is possible. The console's policy keeps it on this page.
  post(message) { this.frame.contentWindow?.postMessage({jsonrpc: "2.0", ...message}, "*"); }

  async hear(message) {
    if (!this.isConnected || this.ended) return;
    const now = performance.now();
    this.left = Math.min(BURST, this.left + (now - this.at) * PER_SECOND / 1000) - 1;
    this.at = now;
    if (this.left < 0) return this.end("The app sent too many messages and was stopped.");
    if (message?.jsonrpc !== "2.0") return;
    if (message.id === "teardown" && !message.method) return this.end("App closed.");
    if (typeof message.method !== "string") return;
    let answer;
    try { answer = await this.answer(message.method, message.params ?? {}, message.id); } catch (error) { answer = failed(String(error.message ?? error)); }
    if (message.id !== undefined && answer && !this.ended) this.post({id: message.id, ...answer});
  }

  async answer(method, params, id) {
    switch (method) {
      case "ping": return {result: {}};
      case "ui/initialize": return {result: await this.initialize()};
      case "ui/notifications/initialized": return void await this.start();
      case "ui/notifications/size-changed": return void this.size(params.height);
      case "ui/notifications/request-teardown": return void this.tearDown();
      case "notifications/cancelled": return void this.running.get(params.requestId)?.abort();
      case "ui/open-link": return this.open(params.url);
      case "ui/message": return this.say(params);
      case "ui/request-display-mode": return {result: {mode: "inline"}};
      case "tools/call": case "resources/read": return this.forward(method, params, id);
    }
    return method.startsWith("notifications/") || method.startsWith("ui/notifications/") ? undefined : failed(`The console does not answer ${method}.`, -32601);
  }

  async initialize() {
    const {tool, granted} = await this.about;
    const hostContext = {
      toolInfo: {tool}, theme: this.theme, displayMode: "inline", availableDisplayModes: ["inline"], platform: "web",
      containerDimensions: {width: this.frame.clientWidth, maxHeight: TALLEST}, locale: navigator.language,
      timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    };
    const hostCapabilities = {openLinks: {}, serverTools: {}, serverResources: {}, logging: {}, sandbox: {permissions: {}, csp: granted}};
    if (document.getElementById("say")) hostCapabilities.message = {text: {}};
    return {protocolVersion: VERSION, hostInfo: {name: "toolcrib", version: "1"}, hostCapabilities, hostContext};
  }

  async start() {
    if (this.ready) return;
    this.ready = true;
    const about = await this.about;
    this.post({method: "ui/notifications/tool-input", params: {arguments: about.arguments}});
    this.post({method: "ui/notifications/tool-result", params: about.result});
  }

  size(height) {
    if (Number.isFinite(height)) this.frame.height = Math.round(Math.min(TALLEST, Math.max(LOWEST, height)));
  }

  async forward(method, params, id) {
    const control = new AbortController();
    this.running.set(id, control);
    try {
      const answer = await fetch(`/apps/${this.dataset.view}/requests`, {method: "POST", signal: control.signal,
        headers: {"content-type": "application/json"}, body: JSON.stringify({method, params})});
      return answer.ok ? await answer.json() : failed(`The crib answered ${answer.status}.`);
    } finally { this.running.delete(id); }
  }

  // A link opens by a click of the person, who sees where it leads.
  open(text) {
    const url = URL.canParse(text) ? new URL(text) : null;
    if (!["http:", "https:"].includes(url?.protocol)) return failed("Invalid URL");
    if (this.link.childElementCount) return failed("Another link is waiting.");
    const anchor = document.createElement("a"), no = document.createElement("button");
    Object.assign(anchor, {href: url.href, target: "_blank", rel: "noopener noreferrer", className: "button", textContent: `Open ${url.href}`});
    Object.assign(no, {type: "button", textContent: "Dismiss"});
    this.link.replaceChildren("The app wants to open a link: ", anchor, " ", no);
    return new Promise((resolve) => {
      const settle = (answer) => { this.link.replaceChildren(); resolve(answer); };
      anchor.addEventListener("click", () => settle({result: {}}));
      no.addEventListener("click", () => settle(failed("Link opening denied by user")));
    });
  }

  // A message becomes a draft: the person sends it.
  say({content}) {
    const say = document.getElementById("say");
    const text = [content].flat().filter((part) => part?.type === "text").map((part) => part.text).join("\n");
    if (!say || say.value || !text) return failed("Message sending denied");
    say.value = text;
    return {result: {}};
  }

  tearDown() {
    if (!this.ready) return this.end("App closed.");
    this.post({id: "teardown", method: "ui/resource-teardown", params: {reason: "closed"}});
    setTimeout(() => this.end("App closed."), ENDING);
  }

  end(words) {
    if (this.ended) return;
    this.ended = true;
    this.disconnectedCallback();
    this.frame.remove();
    this.link.replaceChildren(words);
  }
}
customElements.define("mcp-app", McpApp);
