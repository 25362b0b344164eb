CREATE TABLE changes (
    version bigint NOT NULL,
    type text NOT NULL,
    api_group text NOT NULL,
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    document text NOT NULL,
    previous text
);
CREATE TABLE completed_ranges (
    uid text NOT NULL,
    log_partition integer NOT NULL,
    ranges text NOT NULL
);
CREATE TABLE counters (
    id integer NOT NULL,
    version bigint NOT NULL,
    trimmed bigint NOT NULL
);
CREATE SEQUENCE counters_id_seq
    AS integer
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE counters_id_seq OWNED BY counters.id;
CREATE TABLE failures (
    id bigint NOT NULL,
    uid text NOT NULL,
    document text NOT NULL
);
CREATE SEQUENCE failures_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE failures_id_seq OWNED BY failures.id;
CREATE TABLE objects (
    api_group text NOT NULL,
    kind text NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    version bigint NOT NULL,
    document text NOT NULL
);
CREATE TABLE positions (
    uid text NOT NULL,
    log_partition integer NOT NULL,
    log_offset text NOT NULL
);
CREATE TABLE schema_version (
    version integer NOT NULL
);
ALTER TABLE ONLY counters ALTER COLUMN id SET DEFAULT nextval('counters_id_seq'::regclass);
ALTER TABLE ONLY failures ALTER COLUMN id SET DEFAULT nextval('failures_id_seq'::regclass);
INSERT INTO changes VALUES (2, 'ADDED', '', 'ConfigMap', 'default', 'a', '{"data":{"a":"b"},"metadata":{"resourceVersion":"2"}}', NULL);
INSERT INTO completed_ranges VALUES ('plain', 0, '0000000000000006-0000000000000008');
INSERT INTO counters VALUES (1, 2, 1);
INSERT INTO failures VALUES (1, 'plain', '{"at_ms":1,"event_id":"id","event_source":"/s","partition":0,"offset":"0000000000000001","attempt":1,"code":503,"reason":"Service Unavailable","body":"","end":""}');
INSERT INTO objects VALUES ('', 'ConfigMap', 'default', 'a', 2, '{"data":{"a":"b"},"metadata":{"resourceVersion":"2"}}');
INSERT INTO positions VALUES ('asked', -1, 'log-1');
INSERT INTO positions VALUES ('asked', 0, '0000000000000007');
INSERT INTO positions VALUES ('asked', 1, '0000000000000009');
INSERT INTO positions VALUES ('old', 0, '0000000000000003');
INSERT INTO positions VALUES ('plain', -1, 'log-1');
INSERT INTO positions VALUES ('plain', 1, '');
INSERT INTO positions VALUES ('unknown', -1, '');
INSERT INTO positions VALUES ('unknown', 0, '0000000000000005');
INSERT INTO positions VALUES ('plain', 0, '0000000000000005');
INSERT INTO positions VALUES ('asked', -3, '=0000000000000002');
INSERT INTO positions VALUES ('asked', -2, '=');
INSERT INTO positions VALUES ('asked', -4, '');
INSERT INTO positions VALUES ('asked', 2, '0000000000000000');
INSERT INTO schema_version VALUES (1);
INSERT INTO schema_version VALUES (2);
SELECT pg_catalog.setval('counters_id_seq', 1, false);
SELECT pg_catalog.setval('failures_id_seq', 1, true);
ALTER TABLE ONLY changes
    ADD CONSTRAINT changes_pkey PRIMARY KEY (version);
ALTER TABLE ONLY completed_ranges
    ADD CONSTRAINT completed_ranges_pkey PRIMARY KEY (uid, log_partition);
ALTER TABLE ONLY counters
    ADD CONSTRAINT counters_pkey PRIMARY KEY (id);
ALTER TABLE ONLY failures
    ADD CONSTRAINT failures_pkey PRIMARY KEY (id);
ALTER TABLE ONLY objects
    ADD CONSTRAINT objects_pkey PRIMARY KEY (api_group, kind, namespace, name);
ALTER TABLE ONLY positions
    ADD CONSTRAINT positions_pkey PRIMARY KEY (uid, log_partition);
ALTER TABLE ONLY schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
CREATE INDEX failures_of ON failures USING btree (uid, id);
