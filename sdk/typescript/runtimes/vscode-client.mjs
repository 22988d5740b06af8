// What VS Code's Jupyter extension (ms-toolsai.jupyter 2026.6) does with an "existing Jupyter server", with the packages that it has inside, in their
// versions: @jupyterlab/services, ws and node-fetch. One line of JSON for each step.
//   node vscode-client.mjs http://HOST:8080/jupyter/SANDBOX/?token=KEY
import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
const nodeFetch = require("node-fetch");
const WebSocket = require("ws");
const { KernelAPI, KernelManager, KernelSpecManager, ServerConnection, SessionManager } = require("@jupyterlab/services");

console.debug = console.error; // the package tells there what it does
const say = (step, said) => console.log(JSON.stringify({ step, ...said }));

/** The settings of a server whose address somebody entered: the key is sent as a header, and with WebSockets in the address, too. */
function settingsOf(entered) {
	const url = new URL(entered);
	const baseUrl = `${url.protocol}//${url.host}${url.pathname}`;
	const token = url.searchParams.get("token");
	class AuthorizingRequest extends nodeFetch.Request {
		constructor(input, init) {
			super(input, init);
			const { headers } = this;
			headers.append("Authorization", `token ${token}`);
			headers.set("Content-Type", "application/json");
			const append = headers.append.bind(headers);
			headers.append = (name, value) => name.toLowerCase() === "authorization" || append(name, value);
		}
	}
	class AuthorizingWebSocket extends WebSocket {
		constructor(address, protocols) {
			super(address, protocols, { headers: { Authorization: `token ${token}` } });
			const timer = setInterval(() => this.ping(() => {}), 30_000);
			this.on("close", () => clearInterval(timer));
		}
	}
	return ServerConnection.makeSettings({
		baseUrl, appUrl: "", wsUrl: baseUrl.replace("http", "ws"), token, appendToken: true, init: { cache: "no-store", credentials: "same-origin" },
		fetch: nodeFetch.default, Request: AuthorizingRequest, Headers: nodeFetch.Headers, WebSocket: AuthorizingWebSocket,
	});
}

/** Whether a password would be asked for: a server that wants one sends whoever has none to its login. */
async function needsPassword({ baseUrl }) {
	const first = await nodeFetch.default(baseUrl, { redirect: "follow", headers: { Connection: "keep-alive" } });
	if (first.status === 200 && first.redirected) return first.url.includes("/login?");
	const tree = await nodeFetch.default(new URL("tree?", baseUrl).toString(), { redirect: "manual", headers: { Connection: "keep-alive" } });
	return tree.status !== 404 && tree.status !== 200;
}

/** What one window holds of a server. */
function helperOf(serverSettings) {
	const specs = new KernelSpecManager({ serverSettings });
	const kernels = new KernelManager({ serverSettings });
	const sessions = new SessionManager({ serverSettings, kernelManager: kernels });
	return {
		sessions,
		async list() {
			const [running] = await Promise.all([KernelAPI.listRunning(serverSettings), sessions.ready, specs.refreshSpecs()]);
			await sessions.refreshRunning();
			return { running, specs: specs.specs.kernelspecs, live: [...sessions.running()] };
		},
		dispose() {
			for (const one of [sessions, kernels, specs]) one.dispose();
		},
	};
}

/** A signal's first value that is as wanted. */
function first(signal, wanted) {
	return new Promise((resolve) => {
		const slot = (_, value) => {
			if (wanted(value)) {
				signal.disconnect(slot);
				resolve(value);
			}
		};
		signal.connect(slot);
	});
}

async function connected(session) {
	if (session.kernel.connectionStatus !== "connected") await first(session.kernel.connectionStatusChanged, (status) => status === "connected");
	return session.kernel;
}

/** Runs a cell as a notebook does: what came of it, and the reply. */
async function cell(kernel, code, { silent = false, answer, heard = () => {} } = {}) {
	const request = kernel.requestExecute({ code, silent, stop_on_error: false, allow_stdin: !silent, store_history: !silent }, false);
	const outputs = [];
	request.onIOPub = ({ header, content }) => {
		if (header.msg_type !== "status" && header.msg_type !== "execute_input") outputs.push({ type: header.msg_type, ...content });
		heard(outputs);
	};
	request.onStdin = (message) => message.header.msg_type === "input_request" && kernel.sendInputReply({ status: "ok", value: answer(message.content) }, message.header);
	const reply = await request.done;
	return { outputs, status: reply.content.status, ename: reply.content.ename, count: reply.content.execution_count };
}

const settings = settingsOf(process.argv[2]);
say("entered", { password: await needsPassword(settings) });

const wrong = new URL(process.argv[2]);
wrong.searchParams.set("token", `pds_${"0".repeat(32)}`);
await KernelAPI.listRunning(settingsOf(wrong.toString())).then(
	() => say("refused", { message: null }),
	(error) => say("refused", { status: error.response?.status, message: error.message }),
);

const helper = helperOf(settings);
const { running, specs, live } = await helper.list();
say("listed", {
	running: running.map((kernel) => [kernel.name, kernel.last_activity, kernel.connections]),
	specs: Object.fromEntries(Object.values(specs).map((spec) => [spec.name, [spec.display_name, spec.language]])),
	live: live.map((session) => [session.kernel.name, session.path, session.type]),
});

// The kernel that an agent works in, chosen from the list.
const model = live.find((session) => session.kernel.name === "context-default");
const session = helper.sessions.connectTo({ ...model.kernel, model });
const kernel = await connected(session);
const widgets = [];
kernel.registerCommTarget("jupyter.widget", (comm, opened) => widgets.push({ comm, state: opened.content.data.state }));
const version = await cell(kernel, "import ipywidgets\nprint(ipywidgets.__version__)", { silent: true });
const info = (await kernel.requestKernelInfo()).content;
say("attached", { status: kernel.status, language: info.language_info.name, protocol: info.protocol_version, version: version.outputs });

const drawn = await cell(kernel, "import matplotlib.pyplot as plt\nplt.plot(prices); plt.show()\nsum(prices)");
say("drawn", {
	status: drawn.status, count: drawn.count,
	outputs: drawn.outputs.map(({ type, data }) => [type, data["text/plain"], data["image/png"]?.slice(0, 8)]),
});
say("failed", await cell(kernel, "1/0").then(({ ename, outputs }) => ({ ename, traceback: outputs.at(-1).traceback.join("\n") })));
say("asked", await cell(kernel, "name = input('who? ')\nprint(name)", { answer: ({ prompt, password }) => `${prompt}${password}` }));
const complete = (await kernel.requestComplete({ code: "prices.app", cursor_pos: 10 })).content;
const inspected = (await kernel.requestInspect({ code: "Thing", cursor_pos: 5, detail_level: 0 })).content;
say("completed", { matches: complete.matches, from: complete.cursor_start, found: inspected.found, about: inspected.data["text/plain"] });

// A slider, and its other half that is moved here.
await cell(kernel, "slider = ipywidgets.IntSlider(value=3)\nslider");
const slider = widgets.find(({ state }) => state._model_name === "IntSliderModel");
await slider.comm.send({ method: "update", state: { value: 8 }, buffer_paths: [] }).done;
say("moved", { state: slider.state.value, outputs: (await cell(kernel, "slider.value")).outputs.map(({ data }) => data["text/plain"]) });

let interrupted;
const stuck = await cell(kernel, "print('on', flush=True)\nwhile True: pass", {
	heard: (outputs) => { if (outputs.length && !interrupted) interrupted = kernel.interrupt(); },
});
await interrupted;
say("interrupted", { ename: stuck.ename, kept: (await cell(kernel, "name")).outputs.map(({ data }) => data["text/plain"]) });

let died = false; // which people are told
kernel.statusChanged.connect((_, status) => { died ||= status === "autorestarting"; });
await kernel.restart();
say("restarted", { died, same: kernel.id === model.kernel.id, ename: (await cell(kernel, "name")).ename });

// A notebook that is new: a session with a kernel of its own, whose name and path no other has.
const begun = await helper.sessions.startNew(
	{ path: `plan-jvsc-${randomUUID()}.ipynb`, name: `plan-${randomUUID()}.ipynb`, type: "notebook", kernel: { name: "python3" } },
	{ kernelConnectionOptions: { handleComms: true } },
);
if (begun.kernel.status !== "idle") await first(begun.kernel.statusChanged, (status) => status === "idle");
const own = await cell(begun.kernel, "mine = 1\n'prices' in globals()");
await begun.setPath("renamed.ipynb");
await helper.sessions.refreshRunning();
say("begun", {
	outputs: own.outputs.map(({ data }) => data["text/plain"]), path: begun.path,
	sessions: [...helper.sessions.running()].filter(({ kernel: { id } }) => id === begun.kernel.id).length,
});

// One that is opened on a kind of kernel which is a context.
const again = await helper.sessions.startNew({ path: `b-jvsc-${randomUUID()}.ipynb`, name: "b.ipynb", type: "notebook", kernel: { name: "context-default" } });
say("again", { same: again.kernel.id === model.kernel.id });

// The window is reloaded: it finds the kernels that it had, and goes on.
const reloaded = helperOf(settings);
const found = (await reloaded.list()).live.find(({ kernel: { id } }) => id === begun.kernel.id);
const back = await connected(reloaded.sessions.connectTo({ ...found.kernel, model: found }));
say("reloaded", { outputs: (await cell(back, "mine")).outputs.map(({ data }) => data["text/plain"]) });

await begun.shutdown();
await again.shutdown();
await reloaded.sessions.refreshRunning();
say("shut", { live: [...reloaded.sessions.running()].map((one) => one.kernel.name) });
helper.dispose();
reloaded.dispose();

// Its managers go on asking for a while.
process.exit(0);
