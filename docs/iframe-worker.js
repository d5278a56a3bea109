// Browsers start no worker for a page that is opened from disk. There, this one runs the script of the search in a hidden
// frame. The name of the file keeps mkdocs-material's offline plugin from loading one of this name from another host.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    inside.document.open();
    inside.document.write("<!doctype html><body>");
    inside.document.close();
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    inside.importScripts = async (...urls) => {
      for (const each of urls) await load(inside.document, each);
    };
    this.loaded = load(inside.document, url);
  }

  async postMessage(data) {
    await this.loaded;
    this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
  }

  terminate() {
    this.frame.remove();
  }
}

function load(page, url) {
  const script = page.createElement("script");
  script.src = url;
  return new Promise((resolve, reject) => {
    script.onload = resolve;
    script.onerror = reject;
    page.body.append(script);
  });
}

if (location.protocol === "file:") window.Worker = FrameWorker;
