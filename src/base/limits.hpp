// Every fixed limit, with its reason. What an operator may want to change is in settings.hpp instead.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace fencegate::limits {

// RESP header lines ("*3", "$17") and inline commands; Redis's own limit for both (PROTO_INLINE_MAX_SIZE).
inline constexpr std::size_t resp_line_bytes_max = 64 * 1024;
// Redis's proto-max-bulk-len.
inline constexpr std::int64_t resp_bulk_bytes_max = 512LL * 1024 * 1024;
// Arguments of one command (Redis 7: INT_MAX; 1024*1024 before). A million pointers is what one client may cost.
inline constexpr std::int64_t resp_arguments_max = 1024 * 1024;
// Nesting of a reply to the gate's own commands. Redis's replies nest at most about 9 deep (COMMAND DOCS).
inline constexpr std::size_t resp_depth_max = 128;
// Nesting of a reply that is passed on: a script's ends at 8,000 levels, with Lua's stack; then there may be EXEC's.
inline constexpr std::size_t resp_relayed_depth_max = 16 * 1024;
// Before authentication, where the server wants one; Redis's own limits.
inline constexpr std::int64_t resp_stranger_arguments_max = 10;
inline constexpr std::int64_t resp_stranger_bulk_bytes_max = 16 * 1024;
// A command up to this size is held whole, so that it can be sent again; a larger one is streamed and is sent once.
inline constexpr std::size_t command_buffered_bytes_max = 256 * 1024;
// One write batch: more commands than this wait for the next batch.
inline constexpr std::size_t batch_commands_max = 4096;
// A write up to this size may go over a link that others use, too.
inline constexpr std::size_t shared_command_bytes_max = 4 * 1024;
// A connection that shares sends something on its own link this often, so that the server does not take it for idle.
inline constexpr std::chrono::milliseconds own_link_unused_max{400};
// A shared link that has failed is not opened again before this long, twice as long each time in vain.
inline constexpr std::chrono::seconds shared_link_pause_min{5}, shared_link_pause_max{300};
// One that nobody has used for so long is closed when it does not pay, or is opened where others need it.
inline constexpr std::chrono::seconds shared_link_unused_max{2};
// A tag on it that was not written under for so long makes room for another one, and leaves without one.
inline constexpr std::chrono::seconds shared_tag_kept_min{2}, shared_tag_kept_max{30};
// While a batch is under way for longer than this, nothing more is given to its link.
inline constexpr std::chrono::milliseconds shared_batch_patience{500};
// Where keys cannot be watched for clients that wait (a blocking pop under a tag), it is not tried again before this.
inline constexpr std::chrono::seconds key_watch_pause{30};
// Resource names (the contract: 1 to 200 bytes of [A-Za-z0-9_.:/-]).
inline constexpr std::size_t resource_bytes_max = 200;
// Resources in one fence tag.
inline constexpr std::size_t tag_resources_max = 32;
// Room for one read from a socket; one per thread, shared by all its sessions.
inline constexpr std::size_t read_buffer_bytes_max = 64 * 1024;
// Above this many unsent bytes towards a peer, the other side is not read any more; below half of it, it is again.
inline constexpr std::size_t output_high_water_bytes = 256 * 1024;
// A client that sends a long pipeline before it reads is not deadlocked: beyond the high water, answers wait for it, too, as
// long as those of all clients are no more than the first number. Above it, a client that lets the third wait is told that
// no more is done for it; this allowance shrinks with what is left of the second number, where it is nothing.
inline constexpr std::size_t unread_of_process_bytes_max = 64 * 1024 * 1024;
inline constexpr std::size_t unread_of_process_bytes_full = 96 * 1024 * 1024;
inline constexpr std::size_t unread_of_client_bytes = 512 * 1024;
// From there on only a client that has read everything is served, by reads as small as this: so much comes on top, of each.
inline constexpr std::size_t unread_step_bytes = 1024;
// A client that has taken nothing for this long reads no answers; before, it is only not served.
inline constexpr std::chrono::seconds unread_patience{1};
// Replies that one session waits for; above it the client is not read any more. Else answers of the gate's own would pile
// up behind a command that blocks.
inline constexpr std::size_t replies_awaited_max = 64 * 1024;
// How often a batch that Redis aborted without a reason we can see is sent again before the client is told.
inline constexpr int batch_attempts_max = 8;
// How often a compare-and-set of a mark is repeated when others raise the same mark at the same moment.
inline constexpr int raise_attempts_max = 32;
// Resources whose marks one gate remembers (about 190 bytes each): above it, new ones are refused.
inline constexpr std::size_t marks_remembered_max = 16'000'000;
// Marks that are compared with a backend's by one question.
inline constexpr std::size_t marks_compared_at_once_max = 10'000;
// Of the marks that a backend lost: raises under way at once, so that neither buffers nor deadlines suffer; and marks that
// the log names, the others are counted.
inline constexpr std::size_t marks_healed_at_once_max = 256;
inline constexpr std::size_t lost_marks_logged_max = 10;
inline constexpr std::chrono::seconds same_loss_within{10};

// PostgreSQL: answers of a client to the server's questions during authentication (the server's own limit,
// PG_MAX_AUTH_TOKEN_LENGTH, is 65535).
inline constexpr std::size_t pg_authentication_bytes_max = 64 * 1024;
// Messages of a server that are read, not only moved: errors, completions, parameters.
inline constexpr std::size_t pg_inspected_bytes_max = 64 * 1024;
// A statement up to this size is held whole until it was read; a larger one is read as it streams by.
inline constexpr std::size_t pg_statement_buffered_bytes_max = 256 * 1024;
// guard: transaction: a larger Query of several statements, a migration file, is held whole up to this size. All that are
// held share the second number: one that does not fit any more is refused.
inline constexpr std::size_t pg_gathered_bytes_max = 16 * 1024 * 1024;
inline constexpr std::size_t pg_gathered_of_process_bytes_max = 64 * 1024 * 1024;
// Prepared statements of one session whose text carries a tag.
inline constexpr std::size_t pg_tagged_statements_max = 4096;

// HTTP. A head is held whole; more bytes or fields are 431. A target that is longer is 414.
// The rest of a body that was refused: as much is read and dropped, so that the connection can go on.
inline constexpr std::size_t http_swallowed_bytes_max = 64 * 1024;
// Of the body of a held forward: as much is read before the hold is asked for.
inline constexpr std::size_t http_gathered_bytes_max = 64 * 1024;
// Bodies of routes that a backend carries out share this number: a larger one than the number above that finds no room is
// refused.
inline constexpr std::size_t http_held_of_process_bytes_max = 64 * 1024 * 1024;
inline constexpr std::size_t http_head_bytes_max = 64 * 1024;
inline constexpr std::size_t http_fields_max = 100;
inline constexpr std::size_t http_target_bytes_max = 8 * 1024;
// The longest registered method has 17 bytes (UPDATEREDIRECTREF).
inline constexpr std::size_t http_method_bytes_max = 32;
// Names that Connection lists; each field of a request is compared with each.
inline constexpr std::size_t http_connection_options_max = 32;
// Nobody sends chunk extensions but who wants to cost us something (CVE-2023-39326): of one chunk, and of one body.
inline constexpr std::size_t http_chunk_extension_bytes_max = 256;
inline constexpr std::size_t http_chunk_extensions_bytes_max = 8 * 1024;
// Trailers of one body, which are held until the body was whole; no more of them than a head has fields.
inline constexpr std::size_t http_trailer_bytes_max = 8 * 1024;

// Requests of an HTTP gate that wait for a connection to a store; more are told that it is not available.
inline constexpr std::size_t pg_pool_waiting_max = 1024;
// Rows that a statement of an HTTP gate may answer with; what comes on top is dropped, and said to be.
inline constexpr std::size_t pg_row_bytes_max = 8 * 1024 * 1024;
// One row, which libpq holds whole: beyond it the connection is given up. What is left of memory, too, once a row, or what
// was sent, took this much: libpq gives none of it back.
inline constexpr std::size_t pg_message_bytes_max = 16 * 1024 * 1024;
inline constexpr std::size_t pg_kept_bytes_max = 1024 * 1024;
// A reply of Redis to the gate itself (COMMAND is about 250 KB), or to a command of an HTTP gate: of what is larger, or has
// more values, nothing is kept.
inline constexpr std::size_t redis_reply_bytes_max = 8 * 1024 * 1024;
inline constexpr std::ptrdiff_t redis_reply_values_max = 128 * 1024;

// Admin listener. Probes and scrapes send a few hundred bytes at once and there is one of each.
inline constexpr std::size_t admin_head_bytes_max = 8 * 1024;
inline constexpr std::size_t admin_connections_max = 16;
// Leases of a sidecar's clients: those that are held, and those that are waited for.
inline constexpr std::size_t leases_max = 20'000;
// Requests for marks that wait for a store: they must not shut probes out.
inline constexpr std::size_t admin_marks_max = 4;
// Browsers that watch the status page, which hear of it this often: they must not shut probes out either.
inline constexpr std::size_t status_watchers_max = 4;
inline constexpr std::chrono::milliseconds status_interval{1'000};
// What the status page shows: of resources those that were seen last, and rejections; about 500 and 1,500 bytes each at most.
inline constexpr std::size_t status_resources_max = 1'000, status_rejections_max = 100;
// And the traffic of so many seconds.
inline constexpr std::size_t status_seconds = 60;
// From accept, or from the last answer, to a whole head; the same for a peer to take an answer.
inline constexpr std::chrono::seconds admin_timeout{5};
// The API of leases. 10,000 clients may wait for leases at once, each on a connection.
inline constexpr std::size_t lease_connections_max = 12'000;
// All resources of a tag with the longest names, and room for what else a request says.
inline constexpr std::size_t lease_body_bytes_max = 64 * 1024;
// An object of lists or objects is 2 deep.
inline constexpr std::size_t lease_body_depth_max = 8;
// The name of a holder, which people read.
inline constexpr std::size_t lease_holder_bytes_max = 200;
// What a client sends while it waits for its answer is kept up to this size, and then it is dropped.
inline constexpr std::size_t lease_pipelined_bytes_max = 64 * 1024;
// From a request's first byte to its last; the same for a client to take an answer. Between its requests it has longer: it
// renews at a third of the TTL.
inline constexpr std::chrono::seconds lease_timeout{5}, lease_idle_timeout{120};
// A client that reads its events more slowly is dropped once more than this many bytes of them wait. When nothing happens, it
// hears something this often, so that both sides find out when the other is gone.
inline constexpr std::size_t lease_events_bytes_max = 64 * 1024;
inline constexpr std::chrono::seconds lease_heartbeat{15};
// One value in a log line; the rest is cut off. Peers choose some of these bytes.
inline constexpr std::size_t log_value_bytes_max = 1024;

}  // namespace fencegate::limits
