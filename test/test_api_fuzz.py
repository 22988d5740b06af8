"""Made-up requests against every route, as api/openapi.yaml describes it, on the real thing.

No answer may be a failure of the server's own, or something that the document does not have. Each route has its turn with a few requests;
with PANDASTACK_FUZZ_SECONDS many are made, as long as that: `make fuzz` takes ten minutes. A seed is printed with each failure, and the
requests as curl commands.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon import ROOT, Daemon
from pandastack import Sandbox

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent / "fuzz"
ENVIRONMENT = ROOT / ".cache" / "fuzz"
SECONDS = int(os.environ.get("PANDASTACK_FUZZ_SECONDS", "0"))  # 0: each route once
SEED = os.environ.get("PANDASTACK_FUZZ_SEED", "1")

CONFIG = """
seed = {seed}
{time}
hooks = "{hooks}"
request-timeout = 20
base-url = "{url}"
continue-on-failure = true
headers = {{ Authorization = "Bearer {key}" }}
warnings = false
# What is said to be impossible, or to be too much now, or what nothing in the sandbox answers, is no failure of the server.
checks.not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 501, 502, 503, 504, 507]
# A schema cannot say that a path is a folder, or that there is no node in this template.
checks.positive_data_acceptance.enabled = false
# Unknown and repeated parameters of a query are ignored, which this check takes for a fault.
checks.negative_data_rejection.enabled = false

[phases.coverage]
# Others are 501 where published clients use them.
unexpected-methods = ["PUT", "PATCH", "OPTIONS", "TRACE", "QUERY"]

[generation]
max-examples = {examples}
database = "none"
unique-inputs = true

[dictionaries]
sandboxes.values = ["{victim}"]
contexts.values = ["default", "fuzz"]
processes.values = [{pid}]
rubbish.values = ["/workspace/fuzz"]
paths.values = ["/workspace", "/workspace/fuzz/a", "/etc/passwd", "/dev/null", "/proc/self", "/no/such"]

[parameters]
"path.id" = {{ dictionary = "sandboxes", probability = 0.9 }}
"path.cid" = {{ dictionary = "contexts", probability = 0.8 }}
"path.pid" = {{ dictionary = "processes", probability = 0.7 }}
"query.path" = {{ dictionary = "paths", probability = 0.6 }}

# What would take the sandbox or the key away from the others works on ones that are not there.
[[operations]]
include-operation-id = ["killSandbox", "pauseSandbox", "patchLifecycle"]
parameters = {{ "path.id" = "sb-none" }}

# A process that was killed is still described.
[[operations]]
include-tag = "processes"
checks.use_after_free.enabled = false

# What goes to a server in the sandbox may be of any method.
[[operations]]
include-path-regex = "/(proxy/[{{]port[}}]|p/[{{]token[}}])/"
checks.unsupported_method.enabled = false

# The whole file system of a sandbox is 2 GB, and `/` the first path that comes to mind.
[[operations]]
include-operation-id = "readTar"
parameters = {{ "path.id" = "sb-none" }}

# What would go on for ever.
[[operations]]
include-operation-id = ["allEvents", "sandboxEvents", "logs"]
parameters = {{ "query.follow" = "0" }}

[[operations]]
include-operation-id = "watchFiles"
parameters = {{ "query.path" = "/no/such" }}

[[operations]]
include-operation-id = "revokeKey"
parameters = {{ "path.prefix" = "pds_none" }}

[[operations]]
include-operation-id = "removeFile"
parameters = {{ "query.path" = {{ dictionary = "rubbish", probability = 0.9 }} }}
"""


@pytest.fixture(scope="module")
def schemathesis() -> Path:
    wanted = (HERE / "requirements.txt").read_text()
    done = ENVIRONMENT / "done"
    if not done.exists() or done.read_text() != wanted:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        for command in (
            [sys.executable, "-m", "venv", str(ENVIRONMENT)],
            [str(ENVIRONMENT / "bin" / "pip"), "install", "-q", "-r", str(HERE / "requirements.txt")],
        ):
            subprocess.run(command, check=True, timeout=300, capture_output=True)
        done.write_text(wanted)
    return ENVIRONMENT / "bin"


@pytest.fixture(scope="module")
def fuzzed() -> Iterator[Daemon]:
    d = Daemon(max_sandboxes=6, pool_ready=1, pool_prepared=1).start()
    yield d
    for sandbox in Sandbox.list(api_url=d.url, api_key=d.key):
        sandbox.kill()
    d.stop()
    d.remove()


def test_the_document_is_openapi(schemathesis: Path, fuzzed: Daemon, tmp_path: Path) -> None:
    document = fetch(fuzzed, tmp_path)
    done = subprocess.run([schemathesis / "openapi-spec-validator", document], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_made_up_requests(schemathesis: Path, fuzzed: Daemon, tmp_path: Path) -> None:
    document = fetch(fuzzed, tmp_path)
    victim = Sandbox.create(template="code-interpreter", ttl_seconds=3600, api_url=fuzzed.url, api_key=fuzzed.key)
    victim.create_code_context()
    process = victim.commands.run("cat", background=True)
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG.format(
        url=fuzzed.url, key=fuzzed.key, victim=victim.id, pid=process.pid, seed=SEED, hooks=HERE / "hooks.py",
        time=f"max-time = {SECONDS}" if SECONDS else "", examples=max(3, SECONDS // 3)))
    done = subprocess.run(
        [schemathesis / "schemathesis", "--config-file", config, "run", document],
        cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS + 600)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr + "\n" + fuzzed.tail()
    assert fuzzed.process.poll() is None, fuzzed.tail()
    log = [line for line in fuzzed.log.read_text().splitlines() if "panic" in line or "request failed" in line]
    assert not log, "\n".join(log[:20])


def fetch(d: Daemon, folder: Path) -> Path:
    import urllib.request

    with urllib.request.urlopen(f"{d.url}/openapi.json", timeout=30) as answer:
        document = json.load(answer)
    path = folder / "openapi.json"
    path.write_text(json.dumps(document))
    return path
