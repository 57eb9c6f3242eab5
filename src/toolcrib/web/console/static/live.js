// Subscribes the page to event streams. `follow` calls back with every event of a stream, in order, once.
const listeners = new Map();
const worker = new SharedWorker(document.body.dataset.worker, {name: "toolcrib"}).port;

worker.onmessage = ({data}) => {
  const followed = listeners.get(data.path);
  if (!followed) return;
  if (data.state) { offline(data.path, data.state); followed.onState?.(data.state); return; }
  if (data.event.seq <= followed.last) return;
  followed.last = data.event.seq;
  followed.onEvent(data.event);
};
worker.start();
addEventListener("pagehide", () => worker.postMessage({leave: true}));
addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });

export function follow(path, after, onEvent, onState) {
  listeners.set(path, {last: after, onEvent, onState});
  worker.postMessage({follow: path, after});
}

const broken = new Set();
function offline(path, state) {
  const banner = document.getElementById("offline");
  if (state === "broken") broken.add(path); else broken.delete(path);
  if (state === "ended") banner.textContent = "Signed out. Run `toolcrib open` to sign in again.";
  else banner.textContent = "Connection lost. This page may be out of date; reconnecting…";
  banner.hidden = !broken.size && state !== "ended";
  if (state === "gone") location.reload();
}
