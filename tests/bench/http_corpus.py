"""Who lets what through: the corpus of requests and responses (tests/corpus) as raw bytes through nginx, HAProxy and
fencegate, as they are by default, but for short time limits, by which those end that would wait for more.

A request is let through when more requests have arrived whole at the service than tests/corpus says should; a response
when the client takes it for whole though it should not. Not each of them is an attack: fencegate refuses whatever two
readers could take for two things, and what would hide a token. Where a proxy sends on while it still reads, it depends
on the timing what arrives."""

import concurrent.futures
import contextlib
import textwrap

from contenders import LOOPBACK
from http_contenders import HttpHaproxy, Nginx
from http_gate import HttpGate
from http_raw import Client, Ended, Malformed, RawUpstream, Recorder, read_corpus
from processes import eventually
from report import table

GOOD = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
TIMEOUT = 20  # of a client; nothing should take that long


class StrictNginx(Nginx):
    def __init__(self, service):
        super().__init__()
        self.service = service

    def servers(self):
        return f"""  server {{
    listen {LOOPBACK}:{self.port};
    client_header_timeout 500ms;
    client_body_timeout 500ms;
    keepalive_timeout 100ms;
    lingering_timeout 100ms;
    lingering_time 1s;
    location / {{
      proxy_pass http://{LOOPBACK}:{self.service.port};
      proxy_http_version 1.1;
    }}
  }}
"""


class StrictHaproxy(HttpHaproxy):
    def settings(self):
        return ["option http-server-close", "timeout client 500ms", "timeout server 1s",
                "timeout http-request 500ms", "timeout http-keep-alive 100ms"]


def gate(service, redis, fencegate):
    """It lets everything pass that is HTTP."""
    return HttpGate(service, {"cache": f"redis://{LOOPBACK}:{redis.port}"},
                    [{"match": "PUT /fenced/{id}", "resource": "order:{id}"}], binary=fencegate,
                    extra={"unmatched": "pass", "keep_alive": "100ms", "body_timeout": "500ms",
                           "timeouts": {"head": "500ms"}})


# ---------------------------------------------------------------------------------------------------------- requests


def try_requests(front, service, cases):
    """{case: True: exactly what should has arrived; "more" or "less"}"""
    found = {}
    for case in cases:
        eventually(service.idle)
        service.whole.clear()
        service.broken.clear()
        service.errors.clear()
        with Client(front.port, TIMEOUT) as client:
            client.send(case.bytes)
            try:
                client.reader.rest()
            except TimeoutError as error:
                raise RuntimeError(f"{front.title}, {case.name}: neither answered nor closed") from error
        eventually(service.idle)
        wanted = sum(line.startswith(b"pass ") for line in case.expected)
        arrived = len(service.whole) + len(service.errors)  # the service's own reader takes no malformed ones
        found[case.name] = True if arrived == wanted else "more" if arrived > wanted else "less"
    return found


def request_should_pass(case):
    return all(line.startswith(b"pass ") for line in case.expected)


# --------------------------------------------------------------------------------------------------------- responses


class CaseService(RawUpstream):
    """The first request gets what `case` sends, and the end of the connection; others get what is good."""

    def __init__(self):
        super().__init__(self._serve)
        self.case = None

    def _serve(self, reader, _):
        while (head := reader.head()) is not None:
            reader.body(head)
            if head.start.split(b" ")[1] == b"/case":
                reader.sock.sendall(self.case.bytes)
                return
            reader.sock.sendall(GOOD)


def try_responses(front, service, cases):
    found = {}
    for case in cases:
        service.case = case
        with Client(front.port, TIMEOUT) as client:
            client.reader.wants_trailers = True  # some send them to everybody, as they may
            client.ask(f"{case.method} /case")
            found[case.name] = judge_response(client, case)
    return found


def judge_response(client, case):
    status, _, rest = case.expected[-1].partition(b" ")
    how, _, body = rest.partition(b" ")
    try:
        answer = client.answer(method=case.method)
    except Ended:
        return True if how == b"cut" else "less"
    except (Malformed, ValueError, IndexError):  # not even a status
        return "less" if response_should_pass(case) else "more"
    except TimeoutError as error:
        raise RuntimeError(f"{case.name}: neither answered nor closed") from error
    if how in (b"keep", b"close"):
        return True if answer and (answer.status, answer.body) == (int(status), body) else "less"
    refused = answer is None or answer.status in (500, 502, 503, 504)
    if refused or answer["Connection"] == b"close":
        return True if refused else "more"
    client.ask("GET /next")
    with contextlib.suppress(Ended, Malformed, ValueError, IndexError):
        after = client.answer()
        if after is None or after.body == b"good":
            return "more"
    return "poison"


def response_should_pass(case):
    return case.expected[-1].split(b" ")[1:2] in ([b"keep"], [b"close"])


# ------------------------------------------------------------------------------------------------------------ report


def corpus_report(redis, fencegate):
    makers = {"nginx": StrictNginx, "HAProxy": StrictHaproxy}
    if fencegate:
        makers["fencegate"] = lambda service: gate(service, redis, fencegate)
    yield from _part("requests", "http_requests.txt", makers, Recorder, try_requests, request_should_pass)
    yield from _part("responses", "http_responses.txt", makers, CaseService, try_responses, response_should_pass)


def _part(what, file, makers, make_service, judge, should_pass):
    cases = read_corpus(file)
    found = _try_all(makers, make_service, judge, cases)
    kinds = {section: [case for case in cases if case.section == section]
             for section in dict.fromkeys(case.section for case in cases)} | {"all": cases}

    def row(kind):
        good = [case.name for case in kinds[kind] if should_pass(case)]
        bad = [case.name for case in kinds[kind] if not should_pass(case)]
        return [kind, str(len(good)), *(str(sum(found[title][name] is True for name in good)) for title in found),
                str(len(bad)), *(str(sum(found[title][name] in ("more", "poison") for name in bad)) for title in found)]

    yield (f"Of {len(cases)} {what} as raw bytes: how many sound ones get through, and "
           f"how many of the others do (not all of them are attacks):\n")
    yield from table(["", "sound", *found, "hostile or incomplete", *(f"through {title}" for title in found)],
                     map(row, kinds))
    own = found.get("fencegate", {})
    for title in found:
        more = [name + (" (taken for the next answer)" if what_came == "poison" else "")
                for name, what_came in found[title].items()
                if what_came in ("more", "poison") and own.get(name) not in ("more", "poison")]
        less = [case.name for case in cases if should_pass(case) and found[title][case.name] == "less"]
        refused = "fencegate refuses" if own else "should be refused"
        if more:
            yield from _wrapped(f"{title} lets through what {refused}", more)
        if less:
            yield from _wrapped(f"{title} refuses or changes sound ones", less)


def _wrapped(text, names):
    yield from textwrap.wrap(f"{text}: {len(names)}: {', '.join(names)}.", 120)
    yield ""


def _try_all(makers, make_service, judge, cases):
    """{title: what `judge` found}, all at the same time."""
    with contextlib.ExitStack() as stack:
        fronts = {}
        for title, make in makers.items():
            service = stack.enter_context(make_service())
            fronts[title] = (stack.enter_context(make(service)), service)
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(len(fronts)))
        waiting = {title: pool.submit(judge, *pair, cases) for title, pair in fronts.items()}
        return {title: future.result() for title, future in waiting.items()}
