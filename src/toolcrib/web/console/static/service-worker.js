// Shows notifications about approvals that the crib sends through the browser's push service. Caches nothing.
addEventListener("push", (event) => {
  const {title, body, tag, url} = event.data.json();
  event.waitUntil(registration.showNotification(title, {body, tag, renotify: true, data: {url}}));
});

addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(open(event.notification.data.url));
});

async function open(path) {
  const url = new URL(path, location.origin);
  if (url.origin !== location.origin) return;
  const windows = await clients.matchAll({type: "window"});
  const found = windows.find((each) => new URL(each.url).pathname === url.pathname);
  if (found) await found.focus();
  else await clients.openWindow(url.href);
}
