"""Random conversations of one client: [(bytes, expectations of guard/told.py)], or ("await data",) where the client waits for
CopyInResponse."""

from pg_wire import COPY_DONE, FLUSH, SYNC, bind_to, close, copy_data, copy_fail, describe, execute, parse, query

BEGINS = ("BEGIN", "START TRANSACTION", "/**/begin", "BEGIN ISOLATION LEVEL REPEATABLE READ",
          "BEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN READ WRITE")
COMMITS = ("COMMIT", "END", "/* a */ COMMIT WORK", "commit transaction")
ROLLBACKS = ("ROLLBACK", "ABORT", "--\nROLLBACK")
CHAINS = ("COMMIT AND CHAIN", "END AND CHAIN", "ROLLBACK AND CHAIN")
FAILS = ("SELECT 1/0", "SELEC", "SELECT 'x", "VACUUM app.other", "SELECT 1; ; SELECT")
SETS = ("SET work_mem='4MB'", "SHOW work_mem", "SET LOCAL work_mem='5MB'", "LISTEN a", "RESET ALL", "UNLISTEN *",
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "DISCARD PLANS")
READS = ("SELECT pg_sleep(0.05)", "COPY app.other TO STDOUT", "SELECT count(*) FROM app.w", "LOCK app.other IN ROW SHARE MODE")
NOTHING = ("nothing",)
COPY_MESSAGES = (COPY_DONE, copy_data(b"1\n"), copy_fail("no"))


class Talker:
    """`new_id`: makes the id of a row. `named`: statements under names that are used again."""

    def __init__(self, random, resource, token, new_id, named=True):
        self.random, self.resource, self.token, self.new_id, self.named = random, resource, token, new_id, named

    def _row(self, number):
        return f"{number},'{self.resource}',{self.token}"

    def _insert(self):
        number, luck = self.new_id(), self.random.random()
        row = self._row(number)
        if luck < .5:
            sql = f"INSERT INTO app.w VALUES ({row})"
        elif luck < .6:
            sql = f"/* ; COMMIT; */ INSERT INTO app.w VALUES ({row}) -- x;"
        elif luck < .7:
            sql = f"SELECT app.fw({row})"
        elif luck < .8:
            sql = f"WITH x AS (INSERT INTO app.w VALUES ({row}) RETURNING 1) SELECT *, 'a;b', $$;COMMIT;$$, E'\\';' FROM x"
        elif luck < .9:
            sql = f"DO $d$BEGIN INSERT INTO app.w VALUES ({row}); PERFORM 1; END$d$"
        else:
            sql = f"CALL app.p0({row})"
        return sql, ("rows", [number])

    def _statement(self):
        pick, luck = self.random.choice, self.random.randrange(26)
        if luck < 8 or luck > 23:
            return self._insert()
        if luck < 11:
            return pick(BEGINS), ("begin",)
        if luck < 14:
            return pick(COMMITS), ("end",)
        if luck == 14:
            return pick(ROLLBACKS), ("end",)
        if luck == 15:
            return pick(CHAINS), ("end",)
        if luck == 16:
            return "SAVEPOINT a", ("savepoint", "a")
        if luck == 17:
            return "ROLLBACK TO a", ("to", "a")
        if luck == 18 and self.random.random() < .2:
            return "RELEASE a", ("release", "a")
        if luck == 18:
            return pick(FAILS).split(";", maxsplit=1)[0], NOTHING
        if luck == 19:
            return pick(SETS), NOTHING
        if luck == 20:
            return pick(READS), NOTHING
        if luck == 23:
            return "NOTIFY a", NOTHING
        one, two = self.new_id(), self.new_id()
        if luck == 21:
            return f"CALL app.p({one},{two},'{self.resource}',{self.token},{pick([0, 0.2])})", ("rows", [one, two])
        return (f"DO $$BEGIN INSERT INTO app.w VALUES ({self._row(one)}); COMMIT; PERFORM pg_sleep(0.1); "
                f"INSERT INTO app.w VALUES ({self._row(two)}); END$$"), ("rows", [one, two])

    def conversation(self):
        luck = self.random.random()
        if luck < .35:
            sql, effect = self._statement()
            return [(query(sql), [("C", effect), ("Z",)])]
        if luck < .55:
            all_of_it = [self._statement() for _ in range(self.random.randrange(2, 6))]
            between = self.random.choice([";", " ; ", ";;", ";/*;*/"])
            text = between.join(sql + ("\n" if "--" in sql else "") for sql, _ in all_of_it)
            return [(query(text), [("C", effect) for _, effect in all_of_it] + [("Z",)])]
        if luck < .62:
            ids = [self.new_id(), self.new_id()]
            rows = [(copy_data(f"{one}\t{self.resource}\t{self.token}\n".encode()), []) for one in ids]
            end = copy_fail("no") if self.random.random() < .2 else COPY_DONE
            begin = (query("COPY app.w FROM STDIN"), [("C", ("rows", ids)), ("Z",)])
            return [begin, ("await data",), *rows, (end, [])]
        out = []
        for _ in range(self.random.randrange(1, 5)):
            for _ in range(self.random.randrange(1, 4)):
                out += self._step()
            out.append((SYNC, [("Z",)]))
        return out

    def _step(self):
        luck = self.random.random()
        value = f"{self.resource}/{self.token}"
        if luck < .1:
            number = self.new_id()
            return [(parse(f"SELECT '{{{number}/{value}}}'::app.d[]"), [("1", ("rows", [number]))])]
        if luck < .2:
            number = self.new_id()
            return [(parse(f"SELECT app.imm('{number}/{value}')"), [("1", NOTHING)]),
                    (bind_to(), [("2", ("rows", [number]))])]
        if luck < .3 and self.named:
            return [(bind_to("", "s1"), [("2", NOTHING)]), (execute(), [("C", ("perhaps an end",))])]
        name = self.random.choice(["", "", "s1", "s2"]) if self.named else ""
        if self.random.random() < .05:
            # One that no COPY reads stands between two of which each might.
            out = [(parse("COPY app.other TO STDOUT"), []), (bind_to(), []), (execute(), [("C", NOTHING)])]
            return [*out, (self.random.choice(COPY_MESSAGES), []), *out]
        sql, effect = self._statement()
        if name and effect[0] == "rows":
            name = "r" + name  # is never run from what a skipped Close has left
        out = [(close(b"S", name), [])] if name else []
        out += [(parse(sql, name), [("1", NOTHING)]), (bind_to("", name), [("2", NOTHING)])]
        if self.random.random() < .5:
            out.append((describe(b"P"), []))
        rows = self.random.choice([0, 0, 1]) if effect == NOTHING else 0
        out.append((execute("", rows), [("C", effect)]))
        if name:
            out.append((close(b"S", name), []))  # a name is used once: what it means is then known
        if self.random.random() < .2:
            out.append((FLUSH, []))
        if self.random.random() < .1:
            out.append((self.random.choice(COPY_MESSAGES), []))  # no COPY reads it
        return out
