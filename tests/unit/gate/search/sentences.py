"""Tools of common servers, and user requests that they answer: the project's own evaluation of the search.

A line of `_TOOLS` is `server/tool: description | argument argument …`. A line of `_SENTENCES` is a request and the
tool that answers it.
"""

from toolcrib.builtin.crew.server import DOMAINS
from toolcrib.model.tools import Tool, ToolRef
from toolcrib.tools.define import ToolServer

_TOOLS = """
github/create_issue: Create a new issue in a GitHub repository. | owner repo title body labels
github/list_issues: List issues in a repository with filters. | owner repo state labels
github/add_issue_comment: Add a comment to an existing issue. | owner repo issue_number body
github/create_pull_request: Create a new pull request. | owner repo title head base
github/merge_pull_request: Merge a pull request. | owner repo pull_number merge_method
github/get_pull_request_diff: Get the diff of a pull request. | owner repo pull_number
github/search_code: Search for code across GitHub repositories. | query
github/fork_repository: Fork a repository to your account. | owner repo
github/list_workflow_runs: List workflow runs of a repository. | owner repo workflow_id
github/get_file_contents: Get the contents of a file or directory from a repository. | owner repo path branch
filesystem/read_text_file: Read the complete contents of a file as text. | path head tail
filesystem/write_file: Create a new file or completely overwrite an existing one. | path content
filesystem/edit_file: Make line-based edits to a text file. | path edits
filesystem/list_directory: Get a listing of all files and directories in a path. | path
filesystem/move_file: Move or rename files and directories. | source destination
filesystem/search_files: Recursively search for files matching a pattern. | path pattern
filesystem/get_file_info: Retrieve metadata: size, creation time, permissions. | path
git/git_status: Shows the working tree status. | repo_path
git/git_commit: Records changes to the repository. | repo_path message
git/git_log: Shows the commit logs. | repo_path max_count
git/git_diff_unstaged: Shows changes in the working directory that are not yet staged. | repo_path
git/git_create_branch: Creates a new branch from an optional base branch. | repo_path branch_name
slack/post_message: Post a new message to a Slack channel. | channel_id text
slack/list_channels: List public channels in the workspace. | limit cursor
slack/get_channel_history: Get recent messages from a channel. | channel_id limit
slack/add_reaction: Add an emoji reaction to a message. | channel_id timestamp reaction
gmail/send_email: Send an email. | to subject body attachments
gmail/search_emails: Search emails with Gmail syntax. | query
gmail/create_draft: Create a draft email. | to subject body
gmail/delete_email: Permanently delete an email. | message_id
calendar/create_event: Create a calendar event. | summary start end attendees
calendar/list_events: List events of a calendar between two times. | calendar_id time_min time_max
calendar/find_free_slots: Find free time for all attendees. | attendees duration
calendar/delete_event: Delete an event. | event_id
postgres/query: Run a read-only SQL query. | sql
postgres/list_tables: List the tables of a schema. | schema
postgres/describe_table: Show the columns and types of a table. | table
playwright/browser_navigate: Navigate to a URL. | url
playwright/browser_click: Perform a click on a web page. | element ref
playwright/browser_take_screenshot: Take a screenshot of the current page. | filename
playwright/browser_fill_form: Fill multiple form fields. | fields
fetch/fetch: Fetches a URL from the internet and extracts its contents as markdown. | url max_length
time/get_current_time: Get the current time in a specific timezone. | timezone
time/convert_time: Convert a time between timezones. | source_timezone time target_timezone
memory/create_entities: Create entities in the knowledge graph. | entities
memory/search_nodes: Search for nodes in the knowledge graph. | query
memory/delete_entities: Delete entities and their relations. | entityNames
notion/create_page: Create a page in a workspace or database. | parent title content
notion/search: Search pages and databases by title. | query
notion/append_block: Append content to a page. | page_id content
linear/create_issue: Create a new Linear issue. | title team description priority
linear/update_issue: Update an existing Linear issue. | id state assignee
linear/list_my_issues: List issues that are assigned to the current user. | limit
maps/geocode: Convert an address into coordinates. | address
maps/directions: Get directions between two points. | origin destination mode
maps/search_places: Search for places such as restaurants. | query location radius
weather/get_forecast: Get the weather forecast for a location. | latitude longitude
weather/get_alerts: Get weather alerts for a state. | state
stripe/create_invoice: Create an invoice for a customer. | customer amount
stripe/create_refund: Refund a payment. | payment_intent amount
stripe/list_customers: List the customers. | email limit
docker/list_containers: List all Docker containers. | all
docker/run_container: Run an image in a new container. | image name ports
docker/fetch_container_logs: Fetch the logs of a container. | container_id tail
kubernetes/list_pods: List pods in a namespace. | namespace
kubernetes/scale_deployment: Scale a deployment to a number of replicas. | name replicas
sentry/list_errors: List the unresolved errors of a project. | project
sentry/get_stacktrace: Get the stack trace of an error. | issue_id
drive/search_files: Search for files in Google Drive. | query
drive/share_file: Share a file with a person. | file_id email role
sheets/read_range: Read the values of a range of a spreadsheet. | spreadsheet_id range
sheets/append_rows: Append rows to a spreadsheet. | spreadsheet_id rows
youtube/get_transcript: Get the transcript of a YouTube video. | url language
spotify/play_track: Start playback of a track. | uri
arxiv/search_papers: Search papers on arXiv. | query max_results
translate/translate_text: Translate text into another language. | text target_language
"""

_SENTENCES = """
Open a bug report about the broken login page = github/create_issue
Which tickets are still open in our repository? = github/list_issues
Reply on issue 42 that we are working on it = github/add_issue_comment
Propose my branch for merging into main = github/create_pull_request
Accept the pull request and merge it = github/merge_pull_request
Show me what changed in pull request 17 = github/get_pull_request_diff
Find where the function parse_config is used on GitHub = github/search_code
Make my own copy of this repository = github/fork_repository
Did the last CI workflow pass? = github/list_workflow_runs
Show me the README of that repository on the main branch = github/get_file_contents
What does the file /etc/hosts contain? = filesystem/read_text_file
Save this text to ~/notes/today.md = filesystem/write_file
Replace the third line of this text file = filesystem/edit_file
What is in my downloads folder? = filesystem/list_directory
Rename report.txt to final.txt = filesystem/move_file
Locate all files ending in .log = filesystem/search_files
How big is this file and when was it created? = filesystem/get_file_info
Do I have uncommitted changes in my working tree? = git/git_status
Record the staged changes with a message = git/git_commit
Show the history of commits = git/git_log
What did I change that is not staged? = git/git_diff_unstaged
Start a new branch called feature-x = git/git_create_branch
Tell the team in #general that the release is out, on Slack = slack/post_message
What Slack channels are there? = slack/list_channels
Summarize the recent messages of the channel = slack/get_channel_history
React with a thumbs up emoji = slack/add_reaction
Mail the report to anna@example.com = gmail/send_email
Look for the email from the bank = gmail/search_emails
Prepare an email but do not send it yet = gmail/create_draft
Schedule a meeting with Bob tomorrow at 10 = calendar/create_event
What appointments do I have this week? = calendar/list_events
When are Anna and Bob both free? = calendar/find_free_slots
Cancel the meeting on Friday = calendar/delete_event
How many rows are in the orders table? Use SQL = postgres/query
Which tables does the database have? = postgres/list_tables
What columns does the customers table have? = postgres/describe_table
Go to https://example.com in the browser = playwright/browser_navigate
Press the submit button on the page = playwright/browser_click
Take a picture of the page = playwright/browser_take_screenshot
Enter my name and address into the form = playwright/browser_fill_form
Download the text of this website = fetch/fetch
What time is it in Tokyo right now? = time/get_current_time
Convert 3 pm Berlin to New York time = time/convert_time
Add a new person to the knowledge graph = memory/create_entities
Write a new Notion page with the meeting notes = notion/create_page
Add a paragraph to my Notion page = notion/append_block
File a Linear ticket for the payment bug = linear/create_issue
What is assigned to me in Linear? = linear/list_my_issues
What are the coordinates of this address? = maps/geocode
How do I get from the station to the museum? Give me the route = maps/directions
Find a good Italian restaurant nearby = maps/search_places
Will it rain in Ulm tomorrow? Check the weather = weather/get_forecast
Bill the customer 200 euros = stripe/create_invoice
Give the customer their money back: refund the payment = stripe/create_refund
Which containers are running? = docker/list_containers
Show the log output of the web container = docker/fetch_container_logs
List the pods in the staging namespace = kubernetes/list_pods
Scale the web deployment up to five replicas = kubernetes/scale_deployment
Get the stack trace of the newest crash = sentry/get_stacktrace
Give Bob access to this file on Drive = drive/share_file
Read cells A1 to C10 of the spreadsheet = sheets/read_range
Add a row to the sheet = sheets/append_rows
Get the subtitles transcript of this YouTube video = youtube/get_transcript
Find academic publications about retrieval = arxiv/search_papers
Say this sentence in French, translated = translate/translate_text
Remember that the customer prefers email = crew/crib_save_memory
What do you remember about the deployment? = crew/crib_recall_memory
Ask the owner a question = crew/crib_ask_owner
Send a message to another agent = crew/crib_send_message
Which projects are there in this crib? = crew/crib_list_projects
Who uses this function? Find references in the code = crew/crib_find_references
git create branch = git/git_create_branch
slack_post_message = slack/post_message
creat a calender evnt = calendar/create_event
translat = translate/translate_text
"""


def _tool(line: str) -> Tool:
    ref, _, rest = line.partition(": ")
    description, _, arguments = rest.partition(" | ")
    server, _, name = ref.partition("/")
    properties = {argument: {"type": "string"} for argument in arguments.split()}
    return Tool(ToolRef(server, name), description, {"type": "object", "properties": properties})


def common_tools() -> tuple[Tool, ...]:
    """Return the tools of common servers and of the built-in server `crew`, sorted."""
    crew = ToolServer("crew", tools=[tool for domain in DOMAINS for tool in domain.TOOLS])
    built_in = [definition.tool("crew", "builtin") for definition in crew.definitions.values()]
    return tuple(sorted((*map(_tool, _TOOLS.strip().splitlines()), *built_in), key=lambda tool: tool.ref))


def sentences() -> list[tuple[str, str]]:
    """Return each sentence with the tool that answers it."""
    found: list[tuple[str, str]] = []
    for line in _SENTENCES.strip().splitlines():
        sentence, _, ref = line.rpartition(" = ")
        found.append((sentence, ref))
    return found
