"""The bundles that come with Toolcrib: sets of tools for common work, with a prompt for each.

Bundles only add grants. `store.bundles` keeps custom ones.
"""

from toolcrib.model.policy import Bundle

PRESETS: tuple[Bundle, ...] = (
    Bundle(
        "researcher",
        "Researcher",
        (
            "claude_code/Read", "claude_code/Glob", "claude_code/Grep", "claude_code/WebSearch",
            "claude_code/WebFetch", "crew/crib_recall_memory", "crew/crib_save_memory", "crew/crib_library_*",
            "agent_zoo/agent_zoo_query_brain_entries", "agent_zoo/agent_zoo_create_brain_entry",
        ),
        "Finds things out and writes down what it found: reading, searching, memory and the library.",
        "You research. Look at several sources before you conclude, say where each finding comes from and how sure "
        "you are, and keep what others will need in the library.",
        preset=True,
    ),
    Bundle(
        "reviewer",
        "Reviewer",
        (
            "claude_code/Read", "claude_code/Glob", "claude_code/Grep", "crew/crib_code_symbols",
            "crew/crib_find_references", "crew/crib_github_list_prs", "crew/crib_github_get_pr_diff",
            "crew/crib_github_repo_info", "crew/crib_github_list_issues", "crew/crib_github_review_pr",
            "crew/crib_github_comment_on_pr",
        ),
        "Reads code and changes and says what is wrong with them: reading, symbols, pull requests.",
        "You review. Read the whole change and what it touches before you judge; name file and line, say what would "
        "go wrong and how you know, and do not change the code yourself.",
        preset=True,
    ),
    Bundle(
        "operator",
        "Operator",
        (
            "toolcrib/*", "crew/crib_list_agents", "crew/crib_list_projects", "crew/crib_current_project",
            "crew/crib_create_work_task", "crew/crib_check_work_status", "crew/crib_list_work_tasks",
            "crew/crib_manage_schedule", "crew/crib_notify_owner", "crew/crib_configure_notifications",
            "crew/crib_extend_timeout",
        ),
        "Keeps the crib running: its servers and settings, schedules, work tasks and notices.",
        "You operate this crib. Look at the state before you change it, change one thing at a time, check that it "
        "had the effect you wanted, and tell the owner what you did.",
        preset=True,
    ),
)  # fmt: skip
"""In display order."""
