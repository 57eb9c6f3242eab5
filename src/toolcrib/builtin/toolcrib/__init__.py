"""The built-in server `toolcrib`: the crib itself, its sessions, servers, settings and jobs."""
