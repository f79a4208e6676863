"""Serves the oracle of a domain as an OpenAI-compatible server, for `--model openai:oracle@http://127.0.0.1:PORT/v1`."""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from lumos_agents.texts import DOMAINS, domain


def handler(oracle: object) -> type[BaseHTTPRequestHandler]:
    """Returns a request handler that asks the oracle."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

        def answer(self, status: int, body: dict) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path.endswith("/models"):
                self.answer(200, {"object": "list", "data": [{"id": "oracle", "object": "model"}]})
            else:
                self.answer(404, {"error": {"message": "not found"}})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            chat = self.path.endswith("/chat/completions")
            prompt = request["messages"][-1]["content"] if chat else request["prompt"]
            reply = oracle.reply(prompt)
            finished = {"index": 0, "finish_reason": "stop"}
            choice = {"message": {"role": "assistant", "content": reply}} if chat else {"text": reply}
            usage = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(reply) // 4, "total_tokens": 0}
            self.answer(200, {"id": "1", "object": "completion", "model": "oracle", "choices": [choice | finished], "usage": usage})

    return Handler


class Server(ThreadingHTTPServer):
    """The server; clients may open many connections at once."""

    request_queue_size = 128
    daemon_threads = True


def main() -> None:
    """Serves until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", choices=DOMAINS, required=True)
    parser.add_argument("--world", type=Path, required=True, help="folder that generate.py wrote")
    parser.add_argument("--formulation", choices=("iterative", "onetime"), default="iterative", help="the planner's first prompt does not show it")
    parser.add_argument("--port", type=int, default=9100)
    args = parser.parse_args()
    oracle = domain(args.domain).Oracle(args.world, args.formulation)
    Server(("127.0.0.1", args.port), handler(oracle)).serve_forever()


if __name__ == "__main__":
    main()
