"""Words that people and tool authors use for the same thing: the usual verbs, and the usual nouns of tools.

Each line is one group. A query that contains a word of a group also looks for the others, with a lower weight.
"""

from collections.abc import Mapping
from functools import cache

from toolcrib.gate.search.words import stem

_GROUPS = """
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
""".strip()


@cache
def related_stems() -> Mapping[str, tuple[str, ...]]:
    """Return the stems that are looked for beside a stem."""
    related: dict[str, dict[str, None]] = {}
    for line in _GROUPS.splitlines():
        group = [stem(word) for word in line.split()]
        for term in group:
            related.setdefault(term, {}).update((other, None) for other in group if other != term)
    return {term: tuple(others) for term, others in related.items()}
