-- The database of compose.yaml, beside what its image makes: a writer, who must not be a superuser, and its table.
CREATE ROLE orders LOGIN;
CREATE TABLE orders (token bigint, at timestamptz DEFAULT now());
GRANT ALL ON orders TO orders;
-- The HTTP gates' user: no superuser either, whose hold on a mark nobody could end. It runs the routes' statements.
CREATE ROLE fencegate_gate NOLOGIN;
CREATE ROLE fencegate_api LOGIN IN ROLE fencegate_gate;
GRANT INSERT ON orders TO fencegate_api;
