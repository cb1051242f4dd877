"use strict";
// The search runs in a worker. Browsers refuse workers to pages that are opened from disk, so there
// it runs in a hidden frame with the same interface. The theme looks for this name.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      window.addEventListener("message", (event) => {
        if (event.source === this.frame.contentWindow) this.answer(event.data);
      });
      const load = (path) => `new Promise((done) => {
        const one = document.createElement("script");
        one.src = ${path}; one.onload = done; document.body.append(one); })`;
      this.frame.srcdoc = `<body><script>
        postMessage = (data) => parent.postMessage(data, "*");
        importScripts = (...paths) => Promise.all(paths.map((path) => ${load("path")}));
      <\/script><script src="${url}"><\/script>`;
      document.body.append(this.frame);
    }
    answer(data) {
      const event = new MessageEvent("message", { data });
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      this.ready.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }
    terminate() { this.frame.remove(); }
  };
  window.Worker = window.IFrameWorker;
}
