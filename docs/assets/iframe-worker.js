// Browsers start no workers for pages that are opened from files, and the search of the site is one. Here its program runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(program) {
      this.waiting = []; // what was said before the program was there
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.addEventListener("load", () => this.begin(new URL(program, document.baseURI)), { once: true });
      document.documentElement.append(this.frame);
    }

    begin(program) {
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = inside.document.createElement("script");
      script.src = program;
      script.onload = () => {
        const said = this.waiting;
        this.waiting = null;
        said.forEach((data) => this.postMessage(data));
      };
      script.onerror = () => this.onerror?.(new Event("error", { cancelable: true }));
      inside.document.body.append(script);
    }

    postMessage(data) {
      const copy = structuredClone(data);
      if (this.waiting) this.waiting.push(copy);
      else setTimeout(() => this.frame.contentWindow?.onmessage?.({ data: copy }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
