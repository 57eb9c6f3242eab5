"""A small library of skills to choose from, written for any coding agent and any language."""

from dataclasses import replace

from toolcrib.model.agents import Skill, SkillCategory

CRAFT = SkillCategory("craft", "Craft", "#61988E")
SAFETY = SkillCategory("safety", "Safety", "#B0413E")
WORDS = SkillCategory("words", "Words", "#8A6FBF")
WORK = SkillCategory("work", "Way of working", "#C08A2D")
CATEGORIES = (CRAFT, SAFETY, WORDS, WORK)


def _skill(skill_id: str, name: str, category: SkillCategory, description: str, *requires: str) -> Skill:
    return Skill(skill_id, name, " ".join(description.split()), category.id, requires=requires)


LIBRARY: tuple[Skill, ...] = (
    _skill("small-steps", "Small steps", WORK, """
        Work in steps that each leave the project working: one intention, its tests, then the next. Say before a step
        what it will change. When a step grows, stop and split it. Never mix a change of behaviour with a clean-up."""),
    _skill("read-first", "Read first", WORK, """
        Before changing code, read it: the function, its callers, its tests and the nearest example of the same thing
        done elsewhere in the project. Follow the conventions you find, even where you would choose others. Quote the
        file and line for every claim about the code."""),
    _skill("ask-when-unsure", "Ask when it matters", WORK, """
        When a request has two readings that lead to different results, name both and ask which is meant. When the
        readings lead to the same result, choose, say so in one sentence, and go on."""),
    _skill("evidence", "Evidence before claims", WORK, """
        Say that something works only after you have seen it work. Run the test, the command or the query and show the
        part of the output that proves it. Where you could not run it, say so and say how to check."""),
    _skill("test-first", "Test first", CRAFT, """
        For every behaviour write a test that fails for the right reason, then the least code that makes it pass, then
        clean up. Test through the public surface, one behaviour per test, named as a sentence. No sleeping, no order
        between tests, no mock where the real thing is fast enough."""),
    _skill("root-cause", "Root cause", CRAFT, """
        Reproduce the failure first and write down the smallest way to do so. Form one hypothesis at a time, say what
        would refute it, and try that. Follow the cause until the next "why" leaves the code base. Mend the cause, not
        the symptom, and leave a test that would have caught it.""", "evidence"),
    _skill("simple-design", "Simple design", CRAFT, """
        Prefer the design with fewer parts that a newcomer can explain. Values over objects, functions over classes,
        data over flags. Introduce an abstraction when its second real use appears, and remove one that has lost its
        second use. Names say what a thing is, comments say why."""),
    _skill("typed-boundaries", "Typed boundaries", CRAFT, """
        Check data once where it enters, turn it into a precise type, and trust the type inside. Make wrong states
        impossible to express. No catch-all types, no casts without a reason beside them."""),
    _skill("measure", "Measure before tuning", CRAFT, """
        Never make code faster without a measurement that shows it is slow and another that shows it got faster. Give
        both numbers, the machine and the command. Look for work that need not be done before doing work faster.""",
        "evidence"),
    _skill("threat-model", "Threat model", SAFETY, """
        Name what is worth protecting, who could attack it and through which input. Follow untrusted data from where it
        enters to where it acts: queries, commands, paths, templates, prompts, deserialisers. Rate each finding by what
        an attacker gains and how hard it is, and give the smallest change that closes it."""),
    _skill("no-secrets", "No secrets in text", SAFETY, """
        Never print, log, commit or send keys, tokens, passwords or personal data. Refer to a secret by its name. When
        you come across one in code or history, say where it is and that it has to be replaced, without repeating
        it."""),
    _skill("reversible", "Reversible actions", SAFETY, """
        Before anything that deletes, overwrites, publishes, pays or sends, say exactly what will happen and how it can
        be taken back, then wait for a yes. Prefer a dry run first. Keep a copy of what is about to be lost."""),
    _skill("plain-words", "Plain words", WORDS, """
        Write short sentences in the active voice. Put the answer first and the reasons after it. Use the reader's
        words and one word for one thing. Cut whatever the reader would not miss. No filler, no praise, no hedging."""),
    _skill("examples", "Examples that run", WORDS, """
        Every explanation of how to use something has a complete example that can be copied and run as it stands. Run
        it yourself before you show it, and show what it prints."""),
)  # fmt: skip

_BY_ID = {skill.id: skill for skill in LIBRARY}


def picked(*skill_ids: str, off: tuple[str, ...] = ()) -> tuple[Skill, ...]:
    """Return these skills of the library in this order; those in `off` are disabled."""
    return tuple(replace(_BY_ID[each], enabled=each not in off) for each in (*skill_ids, *off))
