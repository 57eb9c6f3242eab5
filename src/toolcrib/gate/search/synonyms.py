"""Words that people and tool authors use for the same thing: the usual verbs, and the usual nouns of tools.

A query that contains a word of a group also looks for the others, with a lower weight; one that contains a word of a
kind also looks for the kind.
"""

from collections.abc import Mapping
from typing import Final

from toolcrib.gate.search.words import stem

_GROUPS: Final = """
get fetch retrieve read obtain view show display load open
list show enumerate listing every
search find lookup query seek locate discover explore
create add new make insert generate build
write save store record put append edit
update edit modify change alter set revise patch replace
delete remove erase destroy drop clear purge
move rename relocate transfer
send post message notify deliver
run execute launch start invoke perform
stop cancel end terminate kill abort
close shut
copy duplicate clone
convert translate transform change
compare diff difference changes
calculate compute estimate
check verify validate test
analyze analysis examine inspect evaluate review
upload import
download fetch export
merge join combine concatenate
connect link relate relationship relation
folder directory subfolder dir
file document
page webpage web website site url
picture image photo photograph
email mail message
chat message conversation
repo repository project library
issue ticket bug
pull pr merge
commit revision
history log
branch fork
db database sql
table spreadsheet sheet
row record entry
person user people member contact
doc documentation docs
event meeting appointment calendar
date day time
now current today present
price cost quote
stock share ticker
weather forecast temperature climate rain snow
map location place geographic
route direction navigation
town city
hotel accommodation stay lodging
flight airline plane
travel trip vacation tour tourism visit attraction landmark sightseeing
restaurant dining food meal
recipe cooking dish
movie film cinema
song music track audio
video clip youtube
book reading novel
article paper publication
news headline
research academic scholar paper scientific literature study
job career employment hire internship
money finance financial
crypto cryptocurrency bitcoin
shop buy purchase store product
discount coupon deal
graph chart plot diagram visualization
presentation slide ppt powerpoint
text content
word vocabulary
summary summarize summarise overview
idea suggestion recommendation recommend
learn education teach study course
exercise workout fitness
health medical
law legal
code program programming
todo task reminder
id identifier
timezone zone
memory remember knowledge recall
node entity
whole entire full
apartment house home property rent rental estate villa mortgage
market finance stock invest investment trade
seo keyword ranking visibility
horoscope astrology zodiac
bitcoin crypto coin ethereum token nft blockchain finance
company firm business corporation
food restaurant eat hungry
position job vacancy
pro advantage benefit
security vulnerability attack
lesson course class tutorial curriculum tutor skill teach
language translate translation
customer client
invoice bill payment
picture draw drawing
secret password credential
container docker image
screen screenshot browser
reply comment respond answer
contain content contents
big large size
prepare draft
propose suggest request
remember recall memory
click press button
overwrite replace write
metadata info property attribute size permission
undo revert reset restore rollback unstage
uncommitted modified unstaged pending status change
stage index staged
switch checkout
column schema structure describe field
fact note observation detail insight finding takeaway
forget delete remove
entity concept object node
edge relation link relationship
tree hierarchy nested recursive structure
glob wildcard pattern match
allow permit permission grant
think reason thought reflect
clock hour time
select query read
several multiple many batch
version release tag
author contributor committer
approve accept review
deploy release publish
alert alarm incident notification
metric monitor dashboard
bucket storage object
queue topic message
env environment variable
dependency package library module
channel room group
subscribe follow watch
assign assignee owner
label tag category
schedule plan cron
crawl scrape extract
resize crop image
transcribe transcript speech audio
summarize condense tldr summary
""".strip()
"""Each line is a group of words with the same meaning."""

_KINDS: Final = """
flight fly ferry train bus cruise luggage itinerary journey destination tourist passport visa: travel trip
flight airport airline: travel booking
hotel hostel airbnb motel resort: accommodation travel
train railway rail: station ticket
museum gallery painting sculpture artwork: art museum
concert festival theater theatre musical: event ticket
trail hiking: outdoor map
direction destination route address street nearby neighborhood distance navigate: map location
coordinate latitude longitude address: location geocode
gas petrol fuel charging: station car
car vehicle truck automobile motorcycle: car vehicle
weather rain snow sunny humidity wind storm temperature umbrella: weather forecast
stock share dividend portfolio etf bond equity ticker nasdaq revenue earnings: finance financial market invest
invest investor investing trading trader: finance stock portfolio
bitcoin btc ethereum eth defi nft token wallet blockchain coin dogecoin: crypto cryptocurrency finance
usd eur gbp jpy cny dollar euro pound yen yuan rupee: currency exchange
exchange rate: currency convert
loan mortgage interest bank credit debit salary budget expense tax: finance financial
apartment condo flat bedroom tenant landlord lease: rent house property
house villa condo property realtor: estate house
shirt hoodie dress shoe jacket jeans clothes clothing outfit wear fashion: apparel clothing fashion style
laptop phone smartphone headphone gadget electronics monitor: product shop
buy purchase cheap cheapest affordable brand: product shop price
gift present birthday anniversary: gift
coupon discount sale cheap promo: discount deal price
nutrition calorie protein vegan vegetarian keto weight: diet food nutrition
dinner lunch breakfast cook ingredient chef: recipe food meal
pizza sushi burger cuisine: restaurant food
wine beer cocktail sake whisky: drink
doctor patient disease symptom medicine drug clinical hospital therapy: medical health
workout gym muscle running yoga: fitness exercise
lawyer attorney court lawsuit tenant rights contract legislation regulation statute: law legal
patent trademark copyright: law patent
university college student school homework exam lecture lesson teacher: education course learn
math mathematics equation algebra integral: math calculate
arxiv pubmed citation journal thesis scholarly peer: paper research academic
author novel fiction reading literature: book
movie film series episode netflix tv actor show: movie media watch entertainment
song playlist album artist band genre lyrics spotify: music
podcast episode: podcast audio
game gaming player puzzle: game
football soccer basketball baseball nba nfl league match team: sport
job resume cv interview recruiter internship salary hiring: job career
startup company ceo competitor founder: company business
seo keyword backlink serp ranking traffic: seo website
wordpress blog html css landing: website web
google internet online browse: web search
headline politics election happening: news
tweet twitter facebook instagram tiktok linkedin: social media post
vulnerability malware phishing hacker threat protect: security
photo painting logo illustration artwork: image
chart bar pie histogram flowchart visualize visualise visualization: chart diagram graph
pdf docx: document file pdf
csv xlsx spreadsheet dataset: data
essay article story poem paragraph letter: write writing text
rewrite rephrase paraphrase grammar proofread tone formal: rewrite polish text writing
french spanish german chinese japanese korean italian: language translate
zodiac horoscope astrology sign: horoscope astrology
dog cat pet animal puppy: pet animal
plant garden gardening flower: plant garden
planet star galaxy space nasa telescope: space astronomy
java python javascript php node react typescript rust: code programming
function class api bug debug snippet algorithm: code programming
server deploy cluster kubernetes pod: infrastructure deploy
employee payroll manager: company staff
flight hotel booking reservation reserve: book booking reservation
remind remember schedule deadline: calendar reminder note
todo checklist note memo: note task
meeting invite appointment: calendar event
slide deck pptx: presentation
mind brainstorm outline: map idea
qr barcode: qr code
domain whois dns ip hostname: domain network
webpage html scrape crawl scraping: web page fetch
transcript subtitle caption: transcript video
youtube vimeo: video
""".strip()
"""Each line has narrow words, and after the colon the wider ones that tools use for them."""


def _build_related() -> Mapping[str, tuple[str, ...]]:
    related: dict[str, dict[str, None]] = {}
    for line in _GROUPS.splitlines():
        group = [stem(word) for word in line.split()]
        for term in group:
            related.setdefault(term, {}).update((other, None) for other in group if other != term)
    for line in _KINDS.splitlines():
        narrow, _, wide = line.partition(":")
        for term in map(stem, narrow.split()):
            related.setdefault(term, {}).update((stem(other), None) for other in wide.split() if stem(other) != term)
    return {term: tuple(others) for term, others in related.items()}


RELATED: Mapping[str, tuple[str, ...]] = _build_related()
"""The stems that are looked for beside a stem."""
