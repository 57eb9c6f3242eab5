// A conversation that grows: pieces of text are put on as they come, everything else is asked for as it was rendered.
import {follow} from "./live.js";

const PIECES = {text_delta: "text", thinking_delta: "thinking"};

class LiveTranscript extends HTMLElement {
  connectedCallback() {
    this.log = this.firstElementChild;
    this.last = Number(this.dataset.last);
    this.asked = false;
    this.wanted = 0;
    this.late = [];
    follow(`/api/sessions/${this.dataset.session}/events`, this.last, (event) => this.take(event),
      (state) => { if (state === "open") this.refresh(); });
    this.toEnd(true);
  }

  take(event) {
    if (PIECES[event.kind]) return this.put(event);
    if (event.kind === "session_status" || event.kind === "done") htmx.trigger(document.getElementById("session-head"), "live");
    if (event.kind === "session_status" || event.kind === "tool_call_delta") return;
    this.wanted = event.seq;
    this.refresh();
  }

  put(event) {
    const id = `item-${PIECES[event.kind]}-${event.messageId}`;
    const item = document.getElementById(id);
    if (!item) { this.wanted = event.seq; this.refresh(); return; }
    if (this.asked) this.late.push(event);
    if (event.seq <= Number(item.dataset.seq)) return;
    const stick = this.atEnd();
    item.querySelector(".words").append(event.text);
    item.dataset.seq = event.seq;
    if (stick) this.toEnd();
  }

  // One question at a time; what came meanwhile is in the next one. Pieces that came while an answer was on its way may
  // not be in it, and are put on again.
  async refresh() {
    if (this.asked) return;
    this.asked = true;
    try {
      while (this.wanted > this.last) {
        this.late = [];
        const answer = await fetch(`/sessions/${this.dataset.session}/items?after=${this.last}`, {headers: {"HX-Request": "true"}});
        if (!answer.ok) break;
        this.show(await answer.text());
        this.last = Number(answer.headers.get("x-last"));
        for (const event of this.late.splice(0)) this.put(event);
      }
    } catch { /* The crib is away: the stream is broken too, and says when it is back. */ }
    this.asked = false;
  }

  show(html) {
    const stick = this.atEnd();
    const found = new DOMParser().parseFromString(html, "text/html").querySelectorAll("article");
    for (const item of found) {
      const old = document.getElementById(item.id);
      if (old?.contains(document.activeElement) && old.querySelector("[data-ask]") && item.querySelector("[data-ask]")) continue;
      const fresh = document.importNode(item, true);
      if (old) old.replaceWith(fresh); else this.log.append(fresh);
      htmx.process(fresh);
      for (const ask of fresh.querySelectorAll("[data-ask]")) ask.dataset.since = String(performance.now());
    }
    if (stick) this.toEnd();
  }

  atEnd() { return innerHeight + scrollY >= document.documentElement.scrollHeight - 120; }
  toEnd(now) { scrollTo({top: document.documentElement.scrollHeight, behavior: now ? "instant" : "auto"}); }
}
customElements.define("live-transcript", LiveTranscript);

const say = document.getElementById("say");
say.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); say.form.requestSubmit(); }
});
say.form.addEventListener("htmx:after:request", ({detail: {ctx}}) => { if (ctx.response?.status < 400) say.value = ""; say.focus(); });

// Enter on a card says yes and Escape no, only while the focus is on the card itself, not too soon, and never for what destroys.
document.addEventListener("keydown", (event) => {
  const ask = event.target.closest?.("[data-ask]");
  if (!ask || event.target.matches("input,textarea,button,summary,select")) return;
  if (performance.now() - Number(ask.dataset.since ?? 0) < 500) return;
  if (event.key === "Enter" && !("careful" in ask.dataset)) ask.querySelector("[value=approve]")?.click();
  if (event.key === "Escape") ask.querySelector("[value=deny]")?.click();
});
