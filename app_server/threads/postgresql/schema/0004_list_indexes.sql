-- A page of a folder, of a project or of a kind of source, in order of creation, without a look at
-- the threads of others: few, old or archived ones would else be found behind all threads.

CREATE INDEX threads_of_folder ON threads (tenant, cwd, archived, has_content, created_at_ms, id);
CREATE INDEX threads_of_kind ON threads (tenant, source_kind, archived, has_content, created_at_ms, id);
CREATE INDEX threads_of_project ON threads (tenant, project_id, archived, has_content, created_at_ms, id)
    WHERE project_id IS NOT NULL;
