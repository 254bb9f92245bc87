-- The database of compose.yaml, beside what its image makes: a writer, who must not be a superuser, and its table.
CREATE ROLE orders LOGIN;
CREATE TABLE orders (token bigint, at timestamptz DEFAULT now());
GRANT ALL ON orders TO orders;
