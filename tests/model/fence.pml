/* The fence of a Redis gate, as a model that spin walks through whole: links that stand armed inside MULTI, a link that is
   shared, raises, marks that are lost and put back. What it says is what src/gate/redis/armed_link*.cpp and shared_writes.cpp,
   src/backend/marks_keeper*.cpp and redis_scripts.hpp do; "MULTI-ahead" in src/README.md is the short form.

   Two gates and one Redis. Older writers, with token 1, are connected through gate 0: A by a link of its own (link 0), A and B
   by a shared one (link 1). A newer holder, with token 2, arrives through either gate. Redis runs one command at a time;
   between any two of them anything else may happen, so whoever is frozen stays frozen for as long as it takes.

   Asserted: once the mark is >= 2, no write with token 1 commits; a mark that a gate has acknowledged holds across a loss of
   all data; no write is applied twice; who is told "done" was applied, who is told "not applied" was not.

   Each macro of the list in run.py takes one part of the mechanism away, or claims that something never happens: it must be
   refuted. Without any, nothing may be.

   Not modelled: time (all gates put marks back before a new epoch is written: docs/redis.md says for how long they wait),
   gates that end, several tags on a shared link (tags.pml), data that outlive their marks, a server that forgets a tail of its
   log, several threads of a gate, tokens that are good for one use, transactions and watches of the clients' own. */

#ifndef WRITES
#define WRITES 2  /* of A; B has one more where there is a shared link */
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef CUTS
#define CUTS 1
#endif
#ifndef ERRORS
#define ERRORS 1
#endif
#define OLD 1
#define NEW 2
#ifdef NO_OWN
#define OWN_LINK 1  /* which is not there */
#define SHARED_LINK 0
#define LINKS 1
#else
#define OWN_LINK 0
#define SHARED_LINK 1
#ifdef NO_SHARED
#define LINKS 1
#else
#define LINKS 2
#endif
#endif
#ifdef NO_SHARED
#define ALL_WRITES WRITES
#else
#define ALL_WRITES (WRITES + 1)
#endif
#ifdef NO_WATCH
#define TAIL 2
#else
#define TAIL 3
#endif

mtype = { UNWATCH, WATCH, MGET, MULTI, WRITE, EXEC, DISCARD };           /* commands */
mtype = { OK, ERR, MARKS, QUEUED, EXECUTED, NIL };                       /* replies */
mtype = { unsent, for_own, for_shared, in_flight_own, in_flight_shared,  /* where a write is */
          done, not_applied, unknown };

chan to_server[LINKS] = [8] of { mtype, byte };
chan to_gate[LINKS] = [8] of { mtype, byte, byte };

/* Redis. 0: there is none. */
byte mark = OLD, epoch = 1, healing = 0;
byte texts = 1;  /* that were ever used, for an epoch or a healing */
bool watching[LINKS], dirty[LINKS], multi[LINKS], closed[LINKS];
byte queued[LINKS];  /* a set of writes */
byte losses, cuts, errors;

/* The gates. */
byte seen[2] = OLD, known[2] = 1, put_back[2];
bool ready[2] = true;

/* The writes. */
mtype write[ALL_WRITES] = unsent;
byte applied[ALL_WRITES];
#ifdef NEVER_GIVEN_BACK
bool given_back;
#endif

/* What must not be forgotten: marks that were in Redis since the last loss, and marks that were acknowledged. */
byte reached = OLD, acknowledged = OLD;

inline touch_mark() {
  for (i : 0 .. LINKS - 1) { dirty[i] = dirty[i] || watching[i] }
}

inline set_mark(value) {
  mark = value;
  touch_mark();
  reached = (value > reached -> value : reached)
}

inline commit(number, link) {
  applied[number]++;
  assert(applied[number] <= 1);
  assert(OLD >= reached);
  assert(OLD >= acknowledged);
#ifdef NEVER_AFTER_A_LOSS
  assert(losses == 0);
#endif
#ifdef NEVER_SHARED
  assert(link != SHARED_LINK);
#endif
#ifdef NEVER_AFTER_A_CUT
  assert(cuts == 0);
#endif
#ifdef NEVER_GIVEN_BACK
  assert(!given_back);
#endif
}

inline reply(link, what, first, second) { to_gate[link]!what, first, second }

inline end_transaction(link) {
  multi[link] = false; watching[link] = false; dirty[link] = false; queued[link] = 0
}

/* One command of a link, whole. An error (rights that were taken away, memory) changes nothing. */
inline serve(link) {
  to_server[link]?what, number;
  if
  :: errors < ERRORS && (what == WATCH || what == MGET || what == MULTI) -> errors++; reply(link, ERR, 0, 0)
  :: what == EXEC ->
     if
     :: !multi[link] -> reply(link, ERR, 0, 0)
     :: multi[link] && dirty[link] -> end_transaction(link); reply(link, NIL, 0, 0)
     :: else ->
        for (i : 0 .. ALL_WRITES - 1) {
          if
          :: queued[link] & (1 << i) -> commit(i, link)
          :: else
          fi
        }
        end_transaction(link); reply(link, EXECUTED, 0, 0)
     fi
  :: what == DISCARD ->
     if
     :: multi[link] -> end_transaction(link); reply(link, OK, 0, 0)
     :: else -> reply(link, ERR, 0, 0)
     fi
  :: what == WATCH ->
     if
     :: multi[link] -> reply(link, ERR, 0, 0)
     :: else -> watching[link] = true; reply(link, OK, 0, 0)
     fi
  :: what == MULTI ->
     if
     :: multi[link] -> reply(link, ERR, 0, 0)
     :: else -> multi[link] = true; reply(link, OK, 0, 0)
     fi
  :: what == UNWATCH -> watching[link] = false; dirty[link] = false; reply(link, OK, 0, 0)
  :: what == MGET ->
     if
     :: multi[link] -> reply(link, QUEUED, 0, 0)
     :: else -> reply(link, MARKS, mark, epoch)
     fi
  :: what == WRITE ->
     if
     :: multi[link] -> queued[link] = queued[link] | (1 << number); reply(link, QUEUED, 0, 0)
     :: else -> commit(number, link); reply(link, OK, 0, 0)
     fi
  fi;
  i = 0; what = 0; number = 0
}

/* All data go, with marks and epoch. FLUSHALL touches keys that were there. */
inline lose_all() {
  losses++;
  if
  :: mark != 0 -> touch_mark()
  :: else
  fi;
  mark = 0; epoch = 0; healing = 0; reached = 0; i = 0
}

inline cut(link) {
  cuts++;
  closed[link] = true;
  end_transaction(link);
  do
  :: nempty(to_server[link]) -> to_server[link]?_, _
  :: nempty(to_gate[link]) -> to_gate[link]?_, _, _
  :: empty(to_server[link]) && empty(to_gate[link]) -> break
  od
}

active proctype redis() {
  mtype what; byte number, i;
end:
  do
#ifndef NO_OWN
  :: atomic { nempty(to_server[OWN_LINK]) -> serve(OWN_LINK) }
  :: atomic { cuts < CUTS && !closed[OWN_LINK] -> cut(OWN_LINK) }
#endif
#ifndef NO_SHARED
  :: atomic { nempty(to_server[SHARED_LINK]) -> serve(SHARED_LINK) }
#endif
  :: atomic { losses < LOSSES -> lose_all() }
#ifndef NO_SHARED
  :: atomic { cuts < CUTS && !closed[SHARED_LINK] -> cut(SHARED_LINK) }
#endif
  od
}

/* ── links: armed_link ─────────────────────────────────────────────────────────────────────────────────────────── */

#define waiting (link == OWN_LINK -> for_own : for_shared)
#define in_flight (link == OWN_LINK -> in_flight_own : in_flight_shared)

inline arm() {
  arm_epoch = known[0];
#ifndef NO_WATCH
  to_server[link]!WATCH, 0; watches = true;
#endif
  to_server[link]!MGET, 0;
  to_server[link]!MULTI, 0
}

#ifdef NO_OWN
#define goes_back(number) false
#else
#define goes_back(number) (link == SHARED_LINK && number < WRITES)
#endif

/* What the writes that the link has not sent become. A rejection of the shared link means that the session judges again. */
inline give_up() {
  for (i : 0 .. ALL_WRITES - 1) {
    if
    :: write[i] == waiting && goes_back(i) ->
       write[i] = for_own
#ifdef NEVER_GIVEN_BACK
       ; given_back = true
#endif
    :: write[i] == waiting && !goes_back(i) -> write[i] = not_applied; assert(applied[i] == 0)
    :: else
    fi
  }
  i = 0
}

inline answer(from, to) {
  for (i : 0 .. ALL_WRITES - 1) {
    if
    :: write[i] == from ->
       write[i] = to;
       assert(to != done || applied[i] == 1);
       assert(to != not_applied || applied[i] == 0)
    :: else
    fi
  }
  i = 0
}

inline there_is(state) {
  found = false;
  for (i : 0 .. ALL_WRITES - 1) { found = found || write[i] == state }
  i = 0
}

#define has_write(number) (write[number] == waiting)
#if ALL_WRITES == 1
#define has_writes has_write(0)
#elif ALL_WRITES == 2
#define has_writes (has_write(0) || has_write(1))
#else
#define has_writes (has_write(0) || has_write(1) || has_write(2))
#endif

proctype link_of_gate(byte link) {
  mtype what = 0; byte first, second, i, arm_epoch, sent;
  bool watches, watch_ok, marks_ok, multi_ok, went_wrong;

fresh:  /* state::open */
  if
  :: atomic { closed[link] -> goto over }
  :: atomic { !closed[link] && seen[0] > OLD -> give_up(); goto stale }
  :: atomic { !closed[link] && seen[0] <= OLD && ready[0] ->
       if
       :: watches -> to_server[link]!UNWATCH, 0; sent = 1
       :: else
       fi;
       arm()
     }
  fi;
#ifdef NOT_AWAITED
  goto armed;
#endif

tail:  /* the replies of an arm, and of an UNWATCH before it */
  if
  :: atomic { closed[link] -> goto over }
  :: atomic { len(to_gate[link]) == TAIL + sent ->
       if
       :: sent == 1 -> to_gate[link]?what, _, _; sent = 0
       :: else
       fi;
#ifdef NO_WATCH
       watch_ok = true;
#else
       to_gate[link]?what, _, _;
       watch_ok = (what == OK);
#endif
       to_gate[link]?what, first, second;
       marks_ok = (what == MARKS && first == OLD);
#ifndef NO_EPOCH
       marks_ok = marks_ok && second == arm_epoch;
#endif
#ifdef SHARED_GOES_ON
       if
       :: link == SHARED_LINK -> marks_ok = true; first = 0  /* and learns nothing of it */
       :: else
       fi;
#endif
       if
       :: what == MARKS && first > seen[0] -> seen[0] = first
       :: else
       fi;
       to_gate[link]?what, _, _;
       multi_ok = (what == OK);
#ifdef MULTI_NOT_DEMANDED
       multi_ok = true;
#endif
#ifdef WATCH_NOT_DEMANDED
       watch_ok = true;
#endif
       what = 0; first = 0; second = 0; arm_epoch = 0;
       if
       :: watch_ok && marks_ok && multi_ok -> goto armed
       :: else
       fi
     }
  fi;

  /* leave */
  if
  :: multi_ok ->
     atomic {
       if
       :: closed[link] -> goto over
       :: else -> to_server[link]!DISCARD, 0; watches = false
       fi
     };
     if
     :: atomic { closed[link] -> goto over }
     :: atomic { to_gate[link]?what, _, _ ->
          if
          :: what != OK -> goto hang_up
          :: else
          fi
        }
     fi
  :: else
  fi;
  atomic {
    if
    :: !watch_ok || !multi_ok -> give_up()  /* an error of the arm is their answer */
    :: else
    fi;
    goto fresh
  };

armed:
  if
  :: atomic { closed[link] -> goto over }
  :: atomic { !closed[link] && has_writes ->
       if
       :: seen[0] > OLD -> give_up(); goto armed  /* memory rejects */
       :: seen[0] <= OLD ->
          sent = 0;
          for (i : 0 .. ALL_WRITES - 1) {
            if
            :: write[i] == waiting -> write[i] = in_flight; to_server[link]!WRITE, i; sent++
            :: else
            fi
          }
          i = 0;
          to_server[link]!EXEC, 0;
          watches = false;
          arm()
       fi
     }
  fi;
  if
  :: atomic { closed[link] -> goto over }
  :: atomic { len(to_gate[link]) >= sent + 1 ->
#ifdef NOT_AWAITED
       do  /* The replies of the arm come now, and are no reason for anything any more. */
       :: to_gate[link]?[QUEUED, 0, 0] -> break
       :: else -> to_gate[link]?what, _, _
       od;
#endif
       do
       :: sent > 0 ->
          to_gate[link]?what, _, _;
          sent--;
          if
          :: what != QUEUED -> goto hang_up
          :: else
          fi
       :: else -> break
       od;
       to_gate[link]?what, _, _;
       if
       :: what == EXECUTED -> answer(in_flight, done)
#ifdef NIL_IS_DONE
       :: what == NIL -> answer(in_flight, done)
#else
       :: what == NIL ->  /* nothing was applied: it is judged anew */
          answer(in_flight, waiting);
          if
          :: link == SHARED_LINK -> give_up()
          :: else
          fi
#endif
       :: else -> goto hang_up
       fi;
       what = 0
#ifdef NOT_AWAITED
       ; goto armed
#endif
     }
  fi;
  goto tail;

hang_up:  /* something that was not expected */
  atomic {
    if
    :: !closed[link] -> cut(link)
    :: else
    fi
  };

over:  /* The server's end is gone. What was sent may have been applied; what was not is judged anew. */
  atomic {
#if defined(SENT_AGAIN)
    answer(in_flight, waiting);
#elif defined(LOST_IS_NOT_APPLIED)
    answer(in_flight, not_applied);
#else
    answer(in_flight, unknown);
#endif
    give_up();
    sent = 0; watches = false; what = 0;
    closed[link] = false;  /* a new one, perhaps much later */
    goto fresh
  };

stale:  /* What comes now is told so. */
end:
  do
  :: atomic { has_writes -> give_up() }
  od
}

/* ── clients ────────────────────────────────────────────────────────────────────────────────────────────────────── */

#define answered(number) (write[number] == done || write[number] == not_applied || write[number] == unknown)

active proctype client_a() {
  byte number;
  do
  :: number < WRITES ->
     if
#ifndef NO_OWN
     :: write[number] = for_own
#endif
#ifndef NO_SHARED
     :: write[number] = for_shared;
        if
#ifndef NO_OWN
        :: atomic { write[number] == for_shared -> write[number] = for_own }  /* taken back, or given */
#endif
        :: answered(number)
        fi
#endif
     fi;
     answered(number);
     number++
  :: else -> break
  od
}

#ifndef NO_SHARED
active proctype client_b() {
  write[WRITES] = for_shared
}
#endif

/* ── the gates' own connections: marks_keeper ───────────────────────────────────────────────────────────────────── */

proctype control(byte gate) {
  byte found, i;
  bool asked;
end:
  do
  :: atomic { !asked && ready[gate] && seen[gate] < NEW ->  /* the newer holder arrives here: compare_and_set_mark */
       asked = true;
       if
       :: epoch == known[gate] -> set_mark(NEW); i = 0
       :: else -> asked = false; goto look
       fi
     };
     seen[gate] = NEW;
     acknowledged = NEW
  :: epoch != known[gate] ->  /* check_epoch */
look:
     atomic { found = epoch; ready[gate] = (found == known[gate]) };
     if
     :: found == known[gate]
     :: found != known[gate] && found != 0 ->  /* others have put theirs back: heal_all under the new epoch */
        atomic {
          if
          :: epoch == found ->
             if
             :: mark < seen[gate] -> set_mark(seen[gate]); i = 0
             :: else -> seen[gate] = mark
             fi
          :: else -> found = 0
          fi
        };
        atomic {
          if
          :: found != 0 -> known[gate] = found; ready[gate] = true; put_back[gate] = 0
          :: else
          fi
        }
     :: found == 0 ->
        atomic {  /* join_healing */
          if
          :: epoch == 0 && healing == 0 -> texts++; healing = texts; found = healing
          :: epoch == 0 && healing != 0 -> found = healing
          :: else
          fi
        };
        atomic {  /* heal_all under it */
          if
          :: found != 0 && healing == found && epoch == 0 ->
             if
             :: mark < seen[gate] -> set_mark(seen[gate]); i = 0
             :: else -> seen[gate] = mark
             fi;
             put_back[gate] = found
          :: else -> found = 0
          fi
        };
        if
        :: found != 0 ->
           if
#ifdef NO_QUIET
           :: atomic { healing == found ->
#else
           :: atomic { healing == found && put_back[1 - gate] == found ->  /* quiet for long enough */
#endif
                texts++; epoch = texts; healing = 0; known[gate] = epoch; ready[gate] = true; put_back[gate] = 0 }  /* write_epoch */
           :: healing != found  /* settled by the other, or lost again */
           fi
        :: else
        fi
     fi;
     found = 0
  od
}

init {
  atomic {
    run control(0);
    run control(1);
#ifndef NO_OWN
    run link_of_gate(OWN_LINK);
#endif
#ifndef NO_SHARED
    run link_of_gate(SHARED_LINK);
#endif
  }
}
