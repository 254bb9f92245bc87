# What of the live tests runs whenever tests run, and what only by `ctest -C all` (./dev test --all). They all take hours, and most
# of the time goes into servers, drivers and waiting: of each file there is always as much as shows that what it is about works.
#
#   fast_FILE       seconds only: what runs on other versions of PostgreSQL; fast_environment_FILE goes with it
#   always_FILE     what runs always: tests by their names, `fast`, or `nothing`; all of it where this is not set
#   sanitized_FILE  the same with sanitizers, where it is another choice

# ── on several versions of PostgreSQL ───────────────────────────────────────────────────────────────────────────────────────────

# By --all the oldest and the newest one run everything, and those between these two what depends most on the server, and of the rest
# what is fast.
set(whole_on_each pg_arming pg_attacks pg_guard pg_guard_call pg_guard_history pg_guard_monitor pg_history pg_hold pg_install pg_leases
    pg_mutations pg_mutations_locks pg_protect pg_spend)
# Always: what depends most on the server, on the oldest one. What else these show has no version.
set(fast_on_14 pg_arming pg_attacks pg_attacks_can_fail pg_guard pg_guard_call pg_guard_history pg_hold pg_install pg_leases
    pg_mutations pg_mutations_locks pg_protect pg_spend)
# On the newest one all but these: a history takes a minute, and that histories find a broken gate is theirs, whatever the
# server.
set(not_fast_on_18 hold_history http_history http_history_can_fail pg_guard_history_can_fail pg_guard_monitor pg_history
    pg_history_can_fail)

set(fast_pg_arming OlderSessions Words HouseKeeping.test_list_and_look Raises.test_two_at_once)
set(fast_pg_protect Protected.test_every_kind_of_write Protected.test_partitions_and_children
    Protected.test_session_replication_role_does_not_get_around_it
    Guard.test_a_raise_ends_what_is_guarded)
set(fast_pg_install Schema.test_rights Schema.test_an_older_version_is_upgraded_with_its_marks
    Command.test_what_the_hint_says_is_enough)
set(fast_pg_guard Guarded.test_a_stale_transaction_at_every_isolation_level Extended.test_a_stale_pipeline_applies_nothing
    Guarded.test_a_raise_ends_an_open_transaction)
set(fast_pg_guard_monitor Monitored)
set(fast_pg_leases Seals.test_a_mark_with_an_issuer_rises_by_its_seals_only Grants.test_who_may_ask
    Grants.test_an_expired_term_revives_while_nobody_took_or_released_it
    Grants.test_another_start_of_the_server_costs_a_stride Grants.test_they_are_as_durable_as_what_others_commit
    Grants.test_a_restored_dump_in_the_same_server_costs_a_stride Grants.test_those_who_listen_hear_of_a_release)
set(fast_pg_history ShortHistory)
set(fast_pg_history_can_fail PgHistoryCanFail.test_finds_check_then_forward_of_sessions)
set(fast_pg_attacks Direct Pooled)
# Where versions differ: in what ends a transaction, and a number.
set(fast_environment_pg_attacks "FENCEGATE_ATTACKS_ONLY=commit junk call copy middle")
set(fast_pg_attacks_can_fail AttacksCanFail)
set(fast_environment_pg_attacks_can_fail "FENCEGATE_LACKING=parse again")
set(fast_pg_pieces Pieces)
set(fast_pg_differential Differential.test_guarded_transactions)
set(fast_pg_raises Raises.test_a_stuck_resource_stops_no_other Raises.test_who_brings_the_mark_waits_for_no_raise)
set(fast_pg_gate Tokens.test_a_session_is_armed_before_its_first_statement Tokens.test_a_stale_token_is_refused_and_named
    Superseded.test_an_open_transaction_is_rolled_back_and_its_locks_are_free Superseded.test_a_running_statement_ends)
set(fast_pg_guard_history GuardHistory.test_direct)
set(fast_environment_pg_guard_history FENCEGATE_HISTORY_SECONDS=10)
set(fast_pg_guard_history_can_fail GuardHistoryCanFail)
set(fast_pg_guard_call Calls)
set(fast_pg_ends Ends.test_psycopg2)
set(fast_pg_marks WentBack.test_it_is_put_back_and_counted_and_logged_once)
set(fast_pg_lower Follows.test_what_was_seen_before_is_not_put_back_and_what_behind_it_is Sessions.test_what_is_refused_ends_none Table)
set(fast_pg_store Marks.test_look_and_seal Marks.test_rejections)
set(fast_pg_hold Holds.test_a_raise_waits_for_the_holder Holds.test_a_holder_is_ended_after_the_grace)
set(fast_pg_spend Spending.test_a_token_is_good_for_one Spending.test_all_or_nothing)
set(fast_pg_operations Limits.test_every_gauge_returns_to_zero)
set(fast_pg_mutations Mutations.test_the_lock_of_a_raise_holds Mutations.test_reading_the_mark_again_behind_a_raise_holds)
set(fast_pg_client_psql Psql.test_errors_in_the_middle_of_a_script)
set(fast_pg_client_psycopg Psycopg2.test_autocommit Psycopg2.test_a_transaction)
set(fast_pg_client_statements Psycopg2.test_a_comment_arms_and_a_higher_one_arms_anew)
set(fast_pg_client_node NodePostgres.test_superseded_in_a_statement)
set(fast_pg_tls WhatTheServerMustProve.test_the_gate_has_a_certificate WhatGoesThrough.test_scram_without_channel_binding
    WhatGoesThrough.test_a_takeover)
set(fast_pg_addresses SeveralServers.test_it_goes_to_the_server_of_its_session)
set(fast_pg_encodings Encodings.test_what_is_said_and_heard_is_the_same)
set(fast_pg_look_alikes LookAlikes)
set(fast_pg_install_where Rights.test_who_does_what_the_hints_say_can_install Names.test_of_tables)
set(fast_pg_databases Few)
set(fast_pg_mutations_locks Mutations.test_never_ending_a_raise_at_work_holds
    Mutations.test_ending_who_takes_the_key_and_is_no_raise_holds Mutations.test_ending_others_of_the_role_is_needed
    Mutations.test_a_new_list_of_sessions_for_who_sits_on_the_lock_holds)
set(fast_http_gate Forwarding.test_a_raise_waits_for_a_forward Atomic.test_sql Atomic.test_a_body_of_any_bytes
    Atomic.test_sql_refuses_the_stale_and_says_what_the_server_said)
set(fast_http_once Requests.test_a_token_is_good_for_one_request Requests.test_what_fails_in_the_backend_has_used_nothing
    Requests.test_with_the_rights_that_the_page_asks_for)
set(fast_http_routes Values Spellings.test_of_uuids_too Time.test_answer_timeout_is_kept_by_postgres)
set(fast_http_corpus HeldResponses)
set(fast_shipped_http Shipped.test_what_compose_starts Shipped.test_the_example_with_postgres)
set(fast_listener_tag OfPostgres)
set(fast_hold Jobs.test_unchanged_programs_write_under_their_tokens Jobs.test_both_places_are_sealed_for_one_grant)
set(fast_documents_gates Postgres.test_a_writer_is_fenced Postgres.test_protected_tables Postgres.test_guard_transaction
    Postgres.test_a_store_has_the_schema_of_the_gates)
set(fast_token_recipes Etcd.test_a_job_that_stood_still_is_superseded_by_the_next)
set(fast_applications Postgres.test_sqlalchemy_and_django Postgres.test_pgbouncer_in_front)
set(fast_documents FirstTenMinutes)
set(fast_lease_api Leases.test_it_is_sealed_and_released Leases.test_who_waits_is_next)
set(fast_lease_move Move.test_its_places_take_the_new_issuer_and_the_former_one_no_more)
set(fast_leases_differential Differential)
set(fast_redis_hold Issued.test_both_places_are_sealed_for_one_grant)
set(fast_hold_history HoldHistory.test_all_writes_are_in_the_order_of_their_tokens)
set(fast_environment_hold_history FENCEGATE_HOLD_SECONDS=5)
set(fast_http_history RealHistory)
set(fast_http_history_can_fail HttpHistoryCanFail)

# ── what runs always ────────────────────────────────────────────────────────────────────────────────────────────────────────────

foreach(file hold_history http_routes pg_attacks pg_attacks_can_fail pg_guard_monitor pg_history pg_history_can_fail pg_mutations
        pg_mutations_locks)
  set(always_${file} fast)
endforeach()
# pg_*: on PostgreSQL 18, and some on 14, as above. history_can_fail and pg_history_can_fail stay for the others of their kind.
foreach(file http_history_can_fail many_resources pg_arming pg_databases pg_differential pg_encodings pg_hold pg_install
        pg_install_where pg_leases pg_lower pg_marks pg_protect pg_raises pg_spend pg_store pg_tls)
  set(always_${file} nothing)
endforeach()
# Debian has no Helm: ./dev test --all fetches it.
set(always_helm nothing)
set(always_client_ioredis IoredisResp3)
set(always_client_node_redis NodeRedisResp2)
set(always_demo Demo.test_tells_the_story Demo.test_fails_on_a_postgres_gate_that_does_not_fence Demo.test_ctrl_c_ends_everything)
set(always_history Checker RealHistory.test_no_stale_write_while_all_is_frozen_killed_and_cut
    RealHistory.test_no_stale_and_no_lost_write_while_redis_is_killed_and_comes_back)
set(always_lost_tail Promotion)

# ── with sanitizers ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# What is left takes each way through the program once, and the ends of connections and of the program most often. What follows
# takes the same ways and spends its time elsewhere: in drivers, servers and jobs,
foreach(file applications client_ioredis client_node_redis client_redis_cli faults_permissions hold_history http_history listener_tag
        pg_client_node pg_client_psql pg_client_psycopg pg_guard_history pg_guard_monitor pg_history private_gate process redis_lower
        redis_store_threads slips status)
  set(sanitized_${file} nothing)
endforeach()
# and in starting the program again and again, as a command or to hold a lease: with sanitizers each start takes a third of a
# second of a processor, and a lease ends before it was renewed. hold, lease_api, lease_gates and the unit tests take their ways.
foreach(file doctor_postgres doctor_redis hold_elect hold_grace hold_guard hold_numbers hold_static lease_gate_pods lease_move
        lease_operators lease_waiters lease_words lease_writer lost_tail marks_words redis_hold)
  set(sanitized_${file} nothing)
endforeach()
foreach(file hold pg_attacks pg_databases pg_differential pg_guard pg_install pg_lower pg_marks pg_store pg_tls)
  set(sanitized_${file} fast)
endforeach()
set(sanitized_history RealHistory.test_no_stale_and_no_lost_write_while_redis_is_killed_and_comes_back)
set(sanitized_pg_ends Ends.test_a_client_at_rest_is_told_when_it_speaks Ends.test_extended_messages_are_answered_behind_their_sync
    Ends.test_there_are_places_for_a_quarter_and_the_oldest_goes_first Ends.test_psycopg2 Ends.test_in_flight
    RefusedNames GuardedNames Crash)
set(sanitized_reload UnderLoad.test_no_request_fails_and_no_connection_ends Gates Tokens Cancels TheEnd)
set(sanitized_redis_store Marks Refusals Commands)
set(sanitized_redis_tls WhatGoesThrough WhatTheServerMustProve.test_certificates_are_replaced_under_load)
set(sanitized_tls_listeners Redis Http LeaseGates)
