-- The processes that run jobs. Each one renews its lease; the jobs of one whose lease has ended are
-- taken over by others. That of SQLite, whose file one process has at a time, doesn't end.

CREATE TABLE processes (
    id TEXT PRIMARY KEY,
    lease_until BIGINT NOT NULL
);

-- The process of the worker.
ALTER TABLE jobs ADD COLUMN process TEXT;

CREATE INDEX jobs_running ON jobs (id) WHERE worker IS NOT NULL;
