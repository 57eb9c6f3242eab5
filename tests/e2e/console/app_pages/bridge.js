let last = 0; const open = new Map();
const send = (method, params) => parent.postMessage({jsonrpc: "2.0", method, params}, "*");
const ask = (method, params) => new Promise((done) => { open.set(++last, done); parent.postMessage({jsonrpc: "2.0", id: last, method, params}, "*"); });
const put = (id, value) => { const line = document.createElement("p"); line.id = id; line.textContent = JSON.stringify(value); document.body.append(line); };
addEventListener("message", ({data}) => {
  if (open.has(data.id)) { open.get(data.id)(data.result ?? {refused: data.error}); open.delete(data.id); }
  else if (data.method) put(data.method.split("/").pop(), data.params);
});
const start = async () => { const answer = await ask("ui/initialize", {appInfo: {name: "t", version: "1"}, appCapabilities: {}, protocolVersion: "2026-01-26"}); send("ui/notifications/initialized", {}); return answer; };
