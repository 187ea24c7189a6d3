-- The servers of a user's jobs.
CREATE INDEX jobs_by_servers ON jobs (owner, source_server, target_server, deleted_at);
