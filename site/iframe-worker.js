/* Search for pages that are read from a disk: there a browser starts no worker, so its script runs in a frame. The
 * generator's plugin `offline` would load a script of this name from elsewhere; with this one it does not. */
if (location.protocol === "file:") {
    window.Worker = class {
        constructor(url) {
            this.onmessage = null;
            this.onerror = null;
            this.waiting = []; // Messages from before the script was there; then null.
            this.frame = document.createElement("iframe");
            this.frame.hidden = true;
            document.body.append(this.frame);
            const inside = this.frame.contentWindow;
            inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
            const script = inside.document.createElement("script");
            script.src = url;
            script.onload = () => {
                const waiting = this.waiting;
                this.waiting = null;
                waiting.forEach((data) => this.postMessage(data));
            };
            script.onerror = () => this.onerror?.(new Event("error"));
            inside.document.body.append(script);
        }

        postMessage(data) {
            if (this.waiting)
                this.waiting.push(data);
            else
                setTimeout(() => this.frame.contentWindow?.onmessage({ data: structuredClone(data) }));
        }

        terminate() {
            this.frame.remove();
        }
    };
}
