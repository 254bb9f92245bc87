/* A link that connections with several tags share, as a model that spin walks through whole: how it is bound, armed for
   all of its tags, bound anew, and what becomes of writes whose mark has moved. What it says is what
   src/gate/redis/shared_writes.cpp does; how one armed link keeps the rule, with losses, cuts and errors, says fence.pml.

   One Redis, one gate, two resources. Tag A has token 1 of the first; tag B has token 1 of both; tag C has token 2 of the
   first, and comes through this gate. Somebody raises the mark of the second through another one. Any tag may be forgotten
   at any time, as one that does not write any more is.

   Asserted: once a mark is >= 2, no write with token 1 commits; who is told "done" was applied, what goes back to its own
   link was not.

   Each macro of the list in run.py takes one part of the mechanism away, or claims that something never happens: it must
   be refuted. Not modelled: writes that are taken back since their client has gone. */

#define OLD 1
#define NEW 2
#define RESOURCES 2
#define CLAIMS 3  /* a bit of a mask each: (first, 1), (second, 1), (first, 2) */
#define TAGS 3    /* A, B, C */
#define WRITES 5  /* A, B, C, A, B */
#define EACH_CLAIM 7

#define resource_of(claim) (claim == 1 -> 1 : 0)
#define token_of(claim) (claim == 2 -> NEW : OLD)
#define claims_of(tag) (tag == 0 -> 1 : (tag == 1 -> 3 : 4))
#define tag_of(write) (write % 3)
#define first_resource 5  /* the claims of it, as a mask */
#define has(mask, bit) (((mask) >> (bit)) & 1)
#define within(some, all) (((some) & ~(all)) == 0)

mtype = { WATCH, MGET, MULTI, WRITE, EXEC, DISCARD };
mtype = { OK, MARKS, QUEUED, EXECUTED, NIL };
mtype = { unsent, waiting, in_flight, done, own };  /* where a write is; own: on its own link, which is not modelled */

chan to_server = [12] of { mtype, byte };
chan to_gate = [12] of { mtype, byte, byte };

/* Redis. */
byte mark[RESOURCES] = OLD;
byte watching;  /* a mask of resources */
bool dirty, multi;
byte queued;    /* a set of writes */

/* The gate: what it knows of the marks; the link's tags, and what it is bound to and armed for, as masks of claims. */
byte seen[RESOURCES] = OLD;
bool listed[TAGS], bound[TAGS];
bool to_be_bound;
byte bound_to, armed_for;
mtype write[WRITES] = unsent;
byte applied[WRITES];
bool bound_anew;

inline set_mark(resource) {
  mark[resource] = NEW;
  dirty = dirty || has(watching, resource)
}

inline commit(number) {
  applied[number]++;
  assert(applied[number] == 1);
  assert(tag_of(number) == 2 || OLD >= mark[0]);
  assert(tag_of(number) != 1 || OLD >= mark[1]);
#ifdef NEVER_TOGETHER
  assert(tag_of(number) != 1 || !has(queued, 0));
#endif
#ifdef NEVER_BOUND_ANEW
  assert(!bound_anew);
#endif
#ifdef NEVER_OF_A_NEW_HOLDER
  assert(tag_of(number) != 2);
#endif
#ifdef NEVER_BESIDE_A_TAKEOVER
  assert(mark[1] == OLD);
#endif
}

inline end_transaction() { multi = false; watching = 0; dirty = false; queued = 0 }

active proctype redis() {
  mtype what; byte argument, i;
end:
  do
  :: atomic { nempty(to_server) ->
       to_server?what, argument;
       if
       :: what == WATCH -> assert(!multi); watching = watching | argument; to_gate!OK, 0, 0
       :: what == MGET -> assert(!multi); to_gate!MARKS, mark[0], mark[1]
       :: what == MULTI -> assert(!multi); multi = true; to_gate!OK, 0, 0
       :: what == WRITE -> assert(multi); queued = queued | (1 << argument); to_gate!QUEUED, 0, 0
       :: what == DISCARD -> assert(multi); end_transaction(); to_gate!OK, 0, 0
       :: what == EXEC && dirty -> end_transaction(); to_gate!NIL, 0, 0
       :: what == EXEC && !dirty ->
          for (i : 0 .. WRITES - 1) {
            if
            :: has(queued, i) -> commit(i)
            :: else
            fi
          }
          end_transaction(); to_gate!EXECUTED, 0, 0
       fi;
       what = 0; argument = 0; i = 0
     }
  od
}

/* Through another gate. */
active proctype other_holder() { atomic { set_mark(1) } }

/* ── writers: shared_writes::add(), know() ──────────────────────────────────────────────────────────────────────────── */

inline forget(tag) {
  if
  :: listed[tag] -> listed[tag] = false; bound[tag] = false; to_be_bound = true
  :: else
  fi
}

/* Of two tokens of a resource the higher one stays: its session has raised the mark. */
inline add(number) {
  if
  :: tag_of(number) == 2 ->
     forget(0); forget(1)
  :: tag_of(number) != 2 && !listed[2]
  :: tag_of(number) != 2 && listed[2] -> goto to_own  /* or the higher one has not written for a while */
  :: tag_of(number) != 2 && listed[2] -> forget(2)
  fi;
  if
  :: !listed[tag_of(number)] -> listed[tag_of(number)] = true; to_be_bound = true
  :: else
  fi;
  write[number] = waiting;
  goto over;
to_own:
  write[number] = own;
over:
  skip
}

/* A writer's own link was armed when it gave its write away; what has moved since, the gate may or may not know. */
active [2] proctype old_writer() {
  byte number = _pid - 2;
  atomic { seen[0] == OLD && (number == 0 || seen[1] == OLD) -> add(number) }
}
active [2] proctype old_writer_again() {
  byte number = _pid - 4;
  atomic {
    seen[0] == OLD && (number == 0 || seen[1] == OLD) && (write[number] == done || write[number] == own) -> add(number + 3)
  }
}
active proctype new_writer() {
  atomic { set_mark(0) };
  atomic { seen[0] = NEW; add(2) }
}
active [2] proctype clock() {
  byte tag;
  atomic {
    select(tag : 0 .. TAGS - 1);
    forget(tag);
    tag = 0
  }
}

/* ── the link: feed(), arm(), bind(), on_batch() ────────────────────────────────────────────────────────────────────── */

/* Of what it is bound to, what can be proven as far as it is known. */
#define held(claim) (has(bound_to, claim) && seen[resource_of(claim)] <= token_of(claim))
#define armable ((held(0) -> 1 : 0) | (held(1) -> 2 : 0) | (held(2) -> 4 : 0))

#ifdef TOKEN_NOT_COMPARED
/* Whoever wrote under a resource may go on when it is bound with another token. */
#define wants(number) ((bound_to & first_resource) | (tag_of(number) == 1 -> 2 : 0))
#define is_bound(number) ((bound_to & first_resource) != 0 && within(wants(number), bound_to))
#else
#define wants(number) claims_of(tag_of(number))
#define is_bound(number) bound[tag_of(number)]
#endif
#ifdef SENT_UNPROVEN
#define is_proven(number) true
#else
#define is_proven(number) (is_bound(number) && within(wants(number), armed_for))
#endif
#define is_overtaken(number) (is_bound(number) && !within(wants(number), armable))
#define is_waiting(number) (write[number] == waiting)
#define some_wait (is_waiting(0) || is_waiting(1) || is_waiting(2) || is_waiting(3) || is_waiting(4))
#define ready_to_go(number) (is_waiting(number) && is_proven(number))
#define some_proven (ready_to_go(0) || ready_to_go(1) || ready_to_go(2) || ready_to_go(3) || ready_to_go(4))

inline bind() {
  to_be_bound = false;
  bound_anew = (bound_to != 0);
  bound_to = 0;
  for (i : 0 .. TAGS - 1) {
    bound[i] = listed[i];
    bound_to = bound_to | (listed[i] -> claims_of(i) : 0)
  }
  i = 0
}

inline give_back_if(is) {
  for (i : 0 .. WRITES - 1) {
    if
    :: is_waiting(i) && (is) -> write[i] = own; assert(applied[i] == 0)
    :: else
    fi
  }
  i = 0
}

inline answer(to) {
  for (i : 0 .. WRITES - 1) {
    if
    :: write[i] == in_flight -> write[i] = to; assert(applied[i] == (to == done -> 1 : 0))
    :: else
    fi
  }
  i = 0
}

#define mask_of_resources(mask) ((has(mask, 0) || has(mask, 2) -> 1 : 0) | (has(mask, 1) -> 2 : 0))

inline send_arm(mask) {
#ifdef OTHERS_NOT_WATCHED
  to_server!WATCH, mask_of_resources(mask) & 1;
#else
  to_server!WATCH, mask_of_resources(mask);
#endif
  to_server!MGET, 0;
  to_server!MULTI, 0
}

active proctype shared_link() {
  mtype what; byte i, sent, armed_with, tried, first, second;
  bool has_tried, proven;

open:  /* nothing is proven: arm() */
end:
  atomic { some_wait ->
    if
    :: to_be_bound && !has_tried -> bind()
    :: else
    fi;
    give_back_if(!is_bound(i));
    give_back_if(is_overtaken(i));
    armed_with = armable;
    if
    :: !some_wait || (has_tried && (armed_with == tried || !within(armed_with, tried))) ->
       has_tried = false; tried = 0; armed_with = 0;
       give_back_if(true);
       goto open
    :: else
    fi;
    tried = armed_with; has_tried = true;
    send_arm(armed_with)
  };

tail:
  atomic { len(to_gate) == 3 ->
    to_gate?_, _, _;
    to_gate?_, first, second;
#ifdef OTHERS_NOT_READ
    second = OLD;
#endif
    to_gate?_, _, _;
    seen[0] = (has(mask_of_resources(armed_with), 0) && first > seen[0] -> first : seen[0]);
    seen[1] = (has(mask_of_resources(armed_with), 1) && second > seen[1] -> second : seen[1]);
    proven = (!has(armed_with, 0) || first == OLD) && (!has(armed_with, 2) || first == NEW);
    proven = proven && (!has(armed_with, 1) || second == OLD);
    first = 0; second = 0;
    if
    :: proven -> armed_for = armed_with; armed_with = 0; goto armed
    :: else -> armed_with = 0; goto leave
    fi
  };

leave:
  atomic { armed_for = 0; to_server!DISCARD, 0 };
  atomic { nempty(to_gate) -> to_gate?_, _, _; goto open };

armed:  /* feed() */
endarmed:
  if
  :: atomic { some_wait ->
       has_tried = false; tried = 0;
#ifdef BOUND_WHILE_ARMED
       if
       :: to_be_bound -> bind(); armed_for = bound_to
       :: else
       fi;
#endif
       give_back_if(is_overtaken(i));
       if
       :: some_proven && within(armed_for, armable) ->
          for (i : 0 .. WRITES - 1) {
            if
            :: ready_to_go(i) -> write[i] = in_flight; to_server!WRITE, i; sent++
            :: else
            fi
          }
          i = 0;
          to_server!EXEC, 0;
          armed_for = 0; armed_with = armable;
          send_arm(armed_with)
       :: some_wait -> goto leave  /* for others, to be bound anew, or since a mark has moved */
       :: !some_wait -> goto armed
       fi
     }
  fi;
  atomic { len(to_gate) >= sent + 1 ->
    do
    :: sent > 0 -> to_gate?_, _, _; sent--
    :: else -> break
    od;
    to_gate?what, _, _;
    if
    :: what == EXECUTED -> answer(done)
#ifdef NIL_IS_DONE
    :: what == NIL -> answer(done)
#else
    :: what == NIL -> answer(own)
#endif
    fi;
    what = 0;
    goto tail
  }
}
