"""Marking a sent message urgent on the page, and stopping, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect
from tests.kit.browser import reader
from tests.kit.product import do

if TYPE_CHECKING:
    import httpx
    from playwright.sync_api import Browser
    from tests.kit.browser import Reader
    from tests.kit.product import Up

pytestmark = [pytest.mark.slow, pytest.mark.needs("chromium")]

LONG = "one two three four five six seven eight nine ten " * 4
BUSY = do({"say": LONG, "ms": 300})


def deliveries(api: httpx.Client, agent: str, seq: int) -> Any:
    path = f"/api/targets/@{agent}/messages"
    found = api.get(path, params={"after": seq - 1, "limit": 1}).json()
    return found["messages"][0]["deliveries"]


@pytest.mark.req("R123", "R126", "R139")
def test_urgent_message_is_answered_instead_of_the_old_task(person: Reader) -> None:
    person.send(BUSY)
    live = person.page.locator(".run .live").first
    expect(live).to_contain_text("one two")
    question = person.send("what is two and two?")
    person.mark_urgent(question)
    expect(question.locator(".state.surfaced", has_text="urgent")).to_be_visible()
    lines = question.locator(".lifecycle li")
    expect(lines).to_have_text(
        [
            "@user asked to interrupt the current run",
            "Stopping the current run…",
            "The current run was interrupted",
            "Working on the new request of @user",
        ]
    )
    answer = person.messages.last
    expect(answer).to_contain_text("Heard: what is two and two?")
    expect(live).to_contain_text("cut here")
    assert "ten" not in live.inner_text().split()[-3:]
    cut = person.page.locator(".run").first
    expect(cut).to_contain_text("stopped for an urgent message")


@pytest.mark.req("R3", "R16", "R125", "R131")
@pytest.mark.parametrize("body", ["停一下", "urgent: stop what you are doing"])
def test_words_that_say_stop_do_nothing(
    body: str, person: Reader, api: httpx.Client, agent: str
) -> None:
    person.send(BUSY)
    expect(person.condition(agent)).to_have_text("working")
    run = api.get(f"/api/agents/{agent}").json()["currentRun"]["id"]
    person.send(body)
    expect(person.page.locator(".run .live").first).to_contain_text("five")
    assert api.get(f"/api/agents/{agent}").json()["currentRun"]["id"] == run
    (delivery,) = deliveries(api, agent, 2)
    assert delivery["interruptPolicy"] is None


@pytest.mark.req("R125")
def test_sending_and_marking_urgent_are_different_things(person: Reader) -> None:
    """No urgent way stands beside Send; the menu of a sent message has the only one."""
    composer = person.page.locator("form.composer")
    expect(composer.get_by_role("button")).to_have_text(["Send"])
    expect(composer).to_contain_text("A message never interrupts.")
    expect(person.page.get_by_text("Mark urgent")).to_have_count(0)
    person.send(BUSY)
    message = person.send("and this")
    entry = person.more(message).get_by_role("menuitem", name="Mark urgent")
    expect(entry).to_contain_text("Interrupts the current run")


@pytest.mark.req("R123")
def test_urgent_is_offered_only_while_the_agent_runs(
    person: Reader, agent: str
) -> None:
    message = person.send("hello")
    expect(person.messages).to_have_count(2)
    expect(person.condition(agent)).to_have_text("idle")
    entry = person.more(message).get_by_role("menuitem", name="Mark urgent")
    expect(entry).to_have_attribute("aria-disabled", "true")
    entry.click(force=True)
    expect(message.locator(".deliveries li")).to_have_count(1)


def test_double_click_is_one_delivery(
    person: Reader, api: httpx.Client, agent: str
) -> None:
    person.send(BUSY)
    expect(person.condition(agent)).to_have_text("working")
    message = person.send("now")
    menu = person.more(message)
    menu.get_by_role("menuitem", name="Mark urgent").dblclick()
    expect(message.locator(".state.surfaced")).to_be_visible()
    urgent = [d for d in deliveries(api, agent, 2) if d["interruptPolicy"]]
    assert len(urgent) == 1


@pytest.mark.req("R124", "R127", "R129")
def test_stop_ends_the_run_and_says_by_whom(person: Reader, agent: str) -> None:
    person.send(BUSY)
    strip = person.page.locator(".strip")
    expect(strip).to_contain_text(agent)
    expect(person.page.locator(".run .live").first).to_contain_text("one")
    strip.get_by_role("button", name="Stop").click()
    run = person.page.locator(".run").first
    expect(run).to_contain_text("Interrupted by @user")
    expect(run.locator(".live")).to_contain_text("cut here")
    words = person.page.locator("main").inner_text()
    assert "SIG" not in words
    assert "undo" not in words.lower()


@pytest.mark.req("R127", "R128")
def test_cause_and_timeline_stand_in_the_detail_only(
    person: Reader,
) -> None:
    person.send(do({"deaf": ["interrupt", "TERM"]}, {"say": LONG, "ms": 200}))
    expect(person.page.locator(".run .live").first).to_contain_text("two")
    person.mark_urgent(person.send("now"))
    run = person.page.locator(".run").first
    expect(run).to_contain_text("stopped for an urgent message", timeout=60_000)
    assert "SIG" not in person.page.locator("main").inner_text()
    run.locator("summary").click()
    expect(run.locator(".lines li").first).to_be_visible()
    expect(run.locator(".lines")).to_contain_text("cause: urgent")
    picture = run.locator(".picture img")
    expect(picture).to_have_js_property("complete", True)
    assert picture.evaluate("(image) => image.naturalWidth") == 920


def test_urgent_with_an_approval_pending_asks_once(person: Reader, agent: str) -> None:
    person.send(do({"ask": "write_file"}, {"say": "done"}))
    expect(person.condition(agent)).to_have_text("waits for your approval")
    message = person.send("do this instead")
    person.mark_urgent(message)
    dialog = person.page.get_by_role("dialog")
    expect(dialog).to_contain_text("closes it as cancelled")
    dialog.get_by_role("button", name="Mark urgent").click()
    expect(person.page.locator(".card")).to_contain_text("the run was interrupted")
    expect(message.locator(".state.surfaced", has_text="urgent")).to_be_visible()


def test_two_people_see_the_same(
    person: Reader, browser: Browser, up: Up, agent: str
) -> None:
    with reader(browser, up.url) as other:
        other.open(f"@{agent}")
        person.send(BUSY)
        expect(other.page.locator(".run .live").first).to_contain_text("two")
        message = person.send("now")
        other.mark_urgent(other.page.locator("#m2"))
        expect(message.locator(".state.surfaced", has_text="urgent")).to_be_visible()
        expect(other.page.locator("#m2 .state.surfaced")).to_be_visible()
