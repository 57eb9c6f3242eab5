// One connection to the crib for all tabs: each stream is opened once here, and its events go to every subscribed tab.
// A tab sends {follow: path, after}; it receives {path, event}, and {path, state} when a stream is lost or restored.
const streams = new Map();
const KEPT = 1000;

function open(path, after) {
  const stream = {tabs: new Set(), last: after, kept: [], state: "open", tries: 0};
  streams.set(path, stream);
  connect(path, stream);
  return stream;
}

function connect(path, stream) {
  const join = path.includes("?") ? "&" : "?";
  const source = new EventSource(stream.last === null ? path : `${path}${join}after=${stream.last}`);
  stream.source = source;
  source.onopen = () => { stream.tries = 0; say(path, stream, "open"); };
  source.onerror = (event) => {
    if (event.data) return; // an error event sent by the crib has the same name
    source.close();
    say(path, stream, "broken");
    if (!stream.tabs.size) { streams.delete(path); return; }
    stream.tries += 1;
    setTimeout(() => check(path, stream), Math.random() * Math.min(30000, 500 * 2 ** stream.tries));
  };
  for (const kind of KINDS) source.addEventListener(kind, (message) => hear(path, stream, message));
}

const KINDS = ["server_changed", "catalog_changed", "approval_required", "approval_resolved", "session_changed",
  "agent_changed", "config_changed", "notice", "session_status", "user_message", "text_delta", "thinking_delta",
  "text_message", "tool_call_start", "tool_call_delta", "tool_call_end", "question_prompt", "question_answered",
  "tool_result", "error", "done"];

async function check(path, stream) {
  // EventSource does not expose why it failed: a permanent error response stops the retries.
  let answer = null;
  try { answer = await fetch(path, {headers: {accept: "text/event-stream", "last-event-id": String(stream.last ?? "")}}); } catch { /* still unreachable */ }
  if (answer) answer.body?.cancel();
  if (answer && answer.status === 410) { stream.last = null; say(path, stream, "gone"); }
  else if (answer && [401, 403, 404].includes(answer.status)) { say(path, stream, "ended"); return; }
  connect(path, stream);
}

function hear(path, stream, message) {
  if (!message.data) return;
  stream.last = Number(message.lastEventId);
  const told = {path, event: {kind: message.type, ...JSON.parse(message.data)}};
  stream.kept.push(told);
  if (stream.kept.length > KEPT) stream.kept.shift();
  for (const tab of stream.tabs) tab.postMessage(told);
}

function say(path, stream, state) {
  if (state === stream.state && state === "open") return;
  stream.state = state;
  for (const tab of stream.tabs) tab.postMessage({path, state});
}

onconnect = ({ports: [tab]}) => {
  tab.onmessage = ({data}) => {
    if (data.leave) {
      for (const [path, stream] of streams) {
        stream.tabs.delete(tab);
        if (!stream.tabs.size) { stream.source.close(); streams.delete(path); }
      }
      return;
    }
    const stream = streams.get(data.follow) ?? open(data.follow, data.after);
    stream.tabs.add(tab);
    for (const told of stream.kept) if (told.event.seq > data.after) tab.postMessage(told);
    if (stream.state !== "open") tab.postMessage({path: data.follow, state: stream.state});
  };
};
