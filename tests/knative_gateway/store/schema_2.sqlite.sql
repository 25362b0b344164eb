BEGIN TRANSACTION;
CREATE TABLE changes (
	version BIGINT NOT NULL, 
	type TEXT NOT NULL, 
	api_group TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	namespace TEXT NOT NULL, 
	name TEXT NOT NULL, 
	document TEXT NOT NULL, 
	previous TEXT, 
	PRIMARY KEY (version)
);
INSERT INTO "changes" VALUES(2,'ADDED','','ConfigMap','default','a','{"data":{"a":"b"},"metadata":{"resourceVersion":"2"}}',NULL);
CREATE TABLE completed_ranges (
	uid TEXT NOT NULL, 
	log_partition INTEGER NOT NULL, 
	ranges TEXT NOT NULL, 
	PRIMARY KEY (uid, log_partition)
);
INSERT INTO "completed_ranges" VALUES('plain',0,'0000000000000006-0000000000000008');
CREATE TABLE counters (
	id INTEGER NOT NULL, 
	version BIGINT NOT NULL, 
	trimmed BIGINT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "counters" VALUES(1,2,1);
CREATE TABLE failures (
	id INTEGER NOT NULL, 
	uid TEXT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "failures" VALUES(1,'plain','{"at_ms":1,"event_id":"id","event_source":"/s","partition":0,"offset":"0000000000000001","attempt":1,"code":503,"reason":"Service Unavailable","body":"","end":""}');
CREATE TABLE objects (
	api_group TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	namespace TEXT NOT NULL, 
	name TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	document TEXT NOT NULL, 
	PRIMARY KEY (api_group, kind, namespace, name)
);
INSERT INTO "objects" VALUES('','ConfigMap','default','a',2,'{"data":{"a":"b"},"metadata":{"resourceVersion":"2"}}');
CREATE TABLE positions (
	uid TEXT NOT NULL, 
	log_partition INTEGER NOT NULL, 
	log_offset TEXT NOT NULL, 
	PRIMARY KEY (uid, log_partition)
);
INSERT INTO "positions" VALUES('asked',-1,'log-1');
INSERT INTO "positions" VALUES('asked',0,'0000000000000007');
INSERT INTO "positions" VALUES('asked',1,'0000000000000009');
INSERT INTO "positions" VALUES('asked',2,'0000000000000000');
INSERT INTO "positions" VALUES('old',0,'0000000000000003');
INSERT INTO "positions" VALUES('plain',-1,'log-1');
INSERT INTO "positions" VALUES('plain',0,'0000000000000005');
INSERT INTO "positions" VALUES('plain',1,'');
INSERT INTO "positions" VALUES('unknown',-1,'');
INSERT INTO "positions" VALUES('unknown',0,'0000000000000005');
INSERT INTO "positions" VALUES('asked',-4,'');
INSERT INTO "positions" VALUES('asked',-3,'=0000000000000002');
INSERT INTO "positions" VALUES('asked',-2,'=');
CREATE TABLE schema_version (
	version INTEGER NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "schema_version" VALUES(1);
INSERT INTO "schema_version" VALUES(2);
CREATE INDEX failures_of ON failures (uid, id);
COMMIT;
