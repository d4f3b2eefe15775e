"""Stands in for `dovetail_sglang_server.py`: completes with the settings that it is asked for."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OPTIONS = {}
ASKED = []


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(503 if OPTIONS.get("unwell") and ASKED else 200, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print(self.path, flush=True)
        ASKED.append(self.path)
        time.sleep(OPTIONS.get("patience", 0.0))
        if OPTIONS.get("fail"):
            self.answer(500, {"error": "on purpose"})
        elif self.path == "/complete":
            asked = body["settings"]
            cuts = [int(100 * asked[name]) for name in ("temperature",)]
            cuts += [asked["top_k"], int(100 * asked["top_p"]), int(100 * asked["min_p"])]
            cuts += asked["stop_token_ids"]
            drawn = [[each["max_new_tokens"], *cuts] for each in body["requests"]]
            self.answer(200, [{"tokens": tokens, "logps": [-1.0] * len(tokens)} for tokens in drawn])
        else:
            self.answer(200, None)

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format, *args):
        pass


if __name__ == "__main__":
    PORT, OPTIONS = int(sys.argv[2]), json.loads(sys.argv[3])
    print("fake sgl-jax with", OPTIONS, flush=True)
    ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
