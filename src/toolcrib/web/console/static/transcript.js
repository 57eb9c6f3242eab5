// A live conversation: text deltas are appended as they arrive, everything else is fetched as rendered HTML.
import {judge} from "./console.js";
import {follow} from "./live.js";

const PIECES = {text_delta: "text", thinking_delta: "thinking"};

// Like `visible` on the server: characters that render as nothing or as a plain space are written out.
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\ufffc\u{13441}\u{13442}\u{16fe4}\u{1d159}]|\p{Zs}/gu;
const stays = (each, before) => " \n\t".includes(each) || ("\ufe0e\ufe0f".includes(each) && /\p{So}$/u.test(before));
const visible = (text) => text.replace(UNSEEN, (each, at) =>
  stays(each, text.slice(0, at)) ? each : `\\u{${each.codePointAt(0).toString(16)}}`);

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
    this.want(event);
  }

  want(event) {
    this.wanted = Math.max(this.wanted, event.seq);
    this.refresh();
  }

  put(event) {
    const id = `item-${PIECES[event.kind]}-${event.messageId}`;
    const item = document.getElementById(id);
    if (this.asked) this.late.push(event);
    if (!item) return this.want(event);
    if (event.seq <= Number(item.dataset.seq)) return;
    const stick = this.atEnd();
    item.querySelector(".words").append(visible(event.text));
    item.dataset.seq = event.seq;
    if (stick) this.toEnd();
  }

  // One request at a time; later changes are in the next one. Deltas that arrived while a response was in flight may
  // not be in it, and are appended again.
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
    } catch { /* The crib is unreachable: the stream is lost too, and reports when it is restored. */ }
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
      judge(fresh);
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

// Enter on a card approves and Escape denies: only while the card itself has focus, not too soon, never for destructive calls.
document.addEventListener("keydown", (event) => {
  const ask = event.target;
  if (!ask.matches?.("[data-ask]")) return;
  if (performance.now() - Number(ask.dataset.since ?? 0) < 500) return;
  if (event.key === "Enter" && !("careful" in ask.dataset)) ask.querySelector("[value=approve]")?.click();
  if (event.key === "Escape") ask.querySelector("[value=deny]")?.click();
});
