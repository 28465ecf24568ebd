"""project/*, threadSection/*, thread/attachment/*: how users file their threads."""
