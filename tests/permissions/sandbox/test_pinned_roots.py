"""Places are what they were when their policy was set, whatever was put in their way since."""

import os
from pathlib import Path

import pytest

from app_server.permissions.sandbox.policy import (
    UNRESTRICTED,
    EffectivePolicy,
    pin_roots,
    resolved,
)
from app_server.permissions.sandbox.roots import (
    MAX_PINNED,
    NOT_A_FOLDER,
    PinnedRoots,
    RootChanged,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a folder that somebody confined can write to, with a place in it."""
    root = tmp_path.resolve() / "ws"
    (root / "sub" / "deep").mkdir(parents=True)
    (root.parent / "outside" / "deep").mkdir(parents=True)
    return root


def holding(root: Path, place: Path, max_pinned: int = MAX_PINNED) -> PinnedRoots:
    """Hold a place within the reach of somebody confined to the root."""
    pinned = PinnedRoots(max_pinned=max_pinned)
    pinned.can_be_written([str(root)])
    pinned.pin([str(place)])
    return pinned


def swap(place: Path, target: Path | str | None) -> None:
    """Move a place away, and put a link there, or another folder."""
    place.rename(f"{place}.2")
    if target is None:
        place.mkdir()
    else:
        place.symlink_to(target)


@pytest.mark.parametrize("path", ["sub", "sub/deep"])
@pytest.mark.parametrize("target", ["outside", "ws/sub.2", "nowhere"])
def test_a_link_in_the_way_is_refused_whoever_names_the_place_again(
    root: Path, path: str, target: str
) -> None:
    place = root / path
    pinned = holding(root, place)
    swap(root / "sub", root.parent / target)
    real = os.path.realpath(place)
    for again in (pinned.pin, pinned.look_at, pinned.pin):
        with pytest.raises(RootChanged) as refused:
            pinned.checked(str(place))
        assert str(refused.value) == (
            f"`{place}` led to `{place}` when the sandbox was set, and leads to `{real}` now, so "
            "nothing is done in this sandbox. Put it back, or name the folder that is meant"
        )
        again([str(place)])
    (root / "sub").unlink()
    (root / "sub.2").rename(root / "sub")
    assert pinned.checked(str(place)).real == str(place)


def test_another_folder_is_refused_until_the_place_is_named_again(root: Path) -> None:
    place = root / "sub"
    pinned = holding(root, place)
    swap(place, None)
    for _ in range(2):
        with pytest.raises(RootChanged) as refused:
            pinned.checked(str(place))
        pinned.look_at([str(place)])
    assert str(refused.value) == (
        f"`{place}` is not the folder that it was when the sandbox was set, so nothing is done in "
        "this sandbox. If it may be used as it is now, name it again (`cwd` or the sandbox policy "
        "of turn/start or thread/resume)"
    )
    pinned.pin([str(place)])
    assert pinned.checked(str(place)).identity == (place.stat().st_dev, place.stat().st_ino)
    swap(root / "sub.2", None)
    place.rename(root / "sub.3")
    (root / "sub.2").rename(place)
    with pytest.raises(RootChanged):
        pinned.checked(str(place))
    pinned.renew()
    assert pinned.checked(str(place)).identity == (place.stat().st_dev, place.stat().st_ino)


def test_what_nobody_confined_reaches_may_be_made_anew(root: Path) -> None:
    pinned = holding(root, root)
    swap(root, None)
    assert pinned.checked(str(root)).identity == (root.stat().st_dev, root.stat().st_ino)
    link = root.parent / "link"
    link.symlink_to(root)
    pinned.pin([str(link)])
    assert pinned.checked(str(link)).real == str(root)
    link.unlink()
    link.symlink_to(root.parent / "outside")
    # A link is followed again by who names it, and not meanwhile.
    with pytest.raises(RootChanged, match=f"`{link}` led to `{root}`"):
        pinned.checked(str(link))
    pinned.pin([str(link)])
    assert pinned.checked(str(link)).real == str(root.parent / "outside")


def test_a_link_within_reach_on_the_way_is_not_followed_anew(root: Path) -> None:
    # The path and where it leads are out of reach, and a link in between is not.
    inner, link = root / "inner", root.parent / "link"
    inner.symlink_to(root.parent / "outside")
    link.symlink_to("ws/inner/deep")
    pinned = PinnedRoots()
    pinned.pin([str(link)])
    pinned.can_be_written([str(root)])
    assert pinned.checked(str(link)).real == str(root.parent / "outside" / "deep")
    inner.unlink()
    inner.symlink_to(root / "sub")
    pinned.pin([str(link)])
    with pytest.raises(RootChanged):
        pinned.checked(str(link))


def test_what_is_missing_is_no_place_and_a_link_does_not_make_it_one(root: Path) -> None:
    place = root / "new"
    pinned = holding(root, place)
    assert pinned.checked(str(place)).identity is None
    place.symlink_to(root.parent / "outside")
    pinned.pin([str(place)])
    for _ in range(2):
        found = pinned.checked(str(place))
        assert (found.real, found.identity) == (str(place), None)
    place.unlink()
    place.mkdir()
    assert pinned.checked(str(place)).identity == (place.stat().st_dev, place.stat().st_ino)
    place.rmdir()
    assert pinned.checked(str(place)).identity is None
    # Gone and come back is another one: both are there at once, so their numbers differ.
    place.mkdir()
    pinned.pin([str(place)])
    (root / "other").mkdir()
    place.rename(root / "new.2")
    assert pinned.checked(str(place)).identity is None
    (root / "other").rename(place)
    with pytest.raises(RootChanged):
        pinned.checked(str(place))


def test_a_file_may_be_saved_and_not_become_anything_else(root: Path) -> None:
    file = root / "file"
    file.write_text("one")
    pinned = holding(root, file)
    file.rename(root / "file.old")
    file.write_text("two")
    assert pinned.checked(str(file)).identity == NOT_A_FOLDER
    file.unlink()
    file.mkdir()
    with pytest.raises(RootChanged):
        pinned.checked(str(file))
    file.rmdir()
    file.symlink_to(root.parent / "outside")
    with pytest.raises(RootChanged):
        pinned.checked(str(file))


def test_links_in_a_circle_lead_nowhere(root: Path) -> None:
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    assert PinnedRoots().checked(str(root / "a")).identity is None
    assert PinnedRoots().checked(f"{root}/sub/../sub/./deep//").real == str(root / "sub" / "deep")
    assert PinnedRoots().checked(f"{root}/\0").identity is None


def test_what_is_remembered_has_bounds(root: Path) -> None:
    pinned = PinnedRoots(max_pinned=2)
    pinned.pin([str(root), str(root / "sub")])
    others = root.parent / "others"
    for name in ("a", "b", "c"):
        (others / name / "in").mkdir(parents=True)
    # What is in another folder, or gone, is not remembered apart.
    pinned.can_be_written(str(others / name) for name in ("a", "a/in", "no", "b"))
    assert pinned.checked(str(root)).identity is not None
    pinned.pin([str(root.parent)])
    # The one that was used least lately is forgotten.
    (root / "sub" / "deep").rmdir()
    (root / "sub").rmdir()
    (root / "sub").symlink_to(root.parent)
    assert pinned.checked(str(root / "sub")).real == str(root.parent)
    pinned.pin([str(root)])
    root.rename(root.parent / "ws.2")
    root.mkdir()
    pinned.checked(str(root))
    # More folders than are remembered count as all of them.
    pinned.can_be_written([str(others / "c")])
    root.rename(root.parent / "ws.3")
    root.mkdir()
    with pytest.raises(RootChanged):
        pinned.checked(str(root))


def test_what_is_denied_is_found_behind_links(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    (root / "sub" / "inner").symlink_to("deep")
    paths = [f"{link}/sub/inner/key", f"{link}/../outside", f"{root}/no/key", "/x" * 2000]
    found = resolved(EffectivePolicy(denied=(*paths, f"{link}/sub/inner"))).denied
    assert found == tuple(dict.fromkeys(map(os.path.realpath, (*paths, f"{link}/sub/inner"))))


def test_a_policy_is_resolved_as_it_was_set(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root / "sub")
    pinned = PinnedRoots()
    both = EffectivePolicy(
        writable=(str(root), str(link), str(root / "no")), network=False, pinned=pinned
    )
    pin_roots(both)
    sub = root / "sub"
    real = resolved(both)
    assert real.writable == (str(root), str(sub))
    assert dict(real.identities) == {
        str(path): (path.stat().st_dev, path.stat().st_ino) for path in (root, sub)
    }
    swap(sub, root.parent / "outside")
    with pytest.raises(RootChanged, match=f"`{link}` led to `{sub}`"):
        resolved(both)
    read = EffectivePolicy(readable=(str(link),), writable=(), scratch=(str(sub),), pinned=pinned)
    with pytest.raises(RootChanged):
        resolved(read)
    pin_roots(UNRESTRICTED)
    assert resolved(UNRESTRICTED) is UNRESTRICTED


def test_paths_that_a_model_names_make_no_place_forgotten(root: Path) -> None:
    place = root / "sub"
    pinned = holding(root, place, max_pinned=2)
    swap(place, root.parent / "outside")
    asked = [str(root / "asked" / str(number)) for number in range(4)]
    pinned.look_at(asked)
    with pytest.raises(RootChanged):
        pinned.checked(str(place))
    # Of what was asked about last it is known what it was; it becomes a place with its policy.
    (root / "asked").mkdir()
    (root / "asked" / "3").symlink_to(root.parent / "outside")
    assert pinned.checked(asked[3]).identity is None
    assert pinned.checked(asked[3]).real == asked[3]


def test_a_link_that_leads_out_of_where_commands_write_is_never_a_place(root: Path) -> None:
    outside, link = root.parent / "outside", root / "sub" / "link"
    link.symlink_to(outside)
    pinned = PinnedRoots()
    pinned.can_be_written([str(root)])
    for path in (str(link), f"{link}/deep"):
        for is_asked_for in (False, True):
            # Who asks for it is shown where it leads; who names it has not said that it may.
            if is_asked_for:
                pinned.look_at([path])
            pinned.pin([path])
            with pytest.raises(RootChanged) as refused:
                pinned.checked(path)
        assert str(refused.value) == (
            f"`{path}` leads to `{os.path.realpath(path)}` by a link in `{root}/sub`, where "
            "commands of a sandbox can write, so nothing is done in this sandbox. Name the folder "
            "that is meant"
        )
    pinned.pin([str(outside)])
    assert pinned.checked(str(outside)).real == str(outside)
    link.unlink()
    link.mkdir()
    pinned.pin([str(link)])
    assert pinned.checked(str(link)).identity == (link.stat().st_dev, link.stat().st_ino)


def test_a_link_that_stays_where_commands_write_is_followed(root: Path) -> None:
    pinned, link, outer = PinnedRoots(), root / "link", root.parent / "outer"
    link.symlink_to("sub/deep")
    outer.symlink_to(root.parent / "outside")
    pinned.can_be_written([str(root / "sub"), str(root)])
    pinned.pin([str(link), str(outer)])
    assert pinned.checked(str(link)).real == str(root / "sub" / "deep")
    # One that nobody confined can have made leads where it likes.
    assert pinned.checked(str(outer)).real == str(root.parent / "outside")


def test_a_place_that_was_asked_for_is_what_the_user_was_shown(root: Path) -> None:
    outside, link = root.parent / "outside", root / "link"
    link.symlink_to(outside)
    pinned = PinnedRoots()
    pinned.can_be_written([str(root), str(outside)])
    assert pinned.look_at([str(link), f"{link}/deep", str(root)]) == [
        str(outside),
        str(outside / "deep"),
        str(root),
    ]
    # What the user was shown is what was there, whatever takes its place before the answer.
    swap(outside / "deep", root)
    for word in ("led to", "leads to"):
        with pytest.raises(RootChanged, match=f"`{outside}/deep` {word} "):
            pinned.checked(str(outside / "deep"))
        pinned.pin([str(outside / "deep")])
    assert pinned.checked(str(outside)).real == str(outside)
    # Where a link leads is looked at each time, unless a policy has it.
    link.unlink()
    link.symlink_to("sub")
    assert pinned.look_at([str(link)]) == [str(root / "sub")]
    pinned.pin([str(link)])
    link.unlink()
    link.symlink_to("other")
    assert pinned.look_at([str(link)]) == [str(root / "sub")]


def test_no_more_places_are_remembered_than_the_bound(root: Path) -> None:
    # As many links, which may lead elsewhere as long as nobody remembers where they led.
    links = [root / str(number) for number in range(4097)]
    for link in links:
        link.symlink_to("sub")
    pinned = PinnedRoots()
    pinned.pin(map(str, links))
    for link in (links[0], links[1]):
        link.unlink()
        link.symlink_to("no")
    with pytest.raises(RootChanged):
        pinned.checked(str(links[1]))
    assert pinned.checked(str(links[0])).real == str(root / "no")


def test_a_place_that_was_asked_for_and_named_is_forgotten_as_one(root: Path) -> None:
    place = root / "sub"
    pinned = PinnedRoots(max_pinned=2)
    pinned.look_at([str(place)])
    pinned.pin([str(place), str(root), str(root.parent)])
    swap(place, root.parent / "outside")
    assert pinned.checked(str(place)).real == str(root.parent / "outside")


def test_a_folder_that_is_gone_is_remembered_up_to_the_bound(root: Path) -> None:
    for gone, count in ((root / "gone", 1), (root / "gone2", 2)):
        pinned = PinnedRoots(max_pinned=2)
        others = [root.parent / "outside", root.parent / "outside2"][:count]
        for other in others:
            other.mkdir(exist_ok=True)
        pinned.can_be_written([str(gone), *map(str, others)])
        (gone / "in").mkdir(parents=True)
        pinned.pin([str(gone / "in")])
        swap(gone / "in", None)
        if count == 1:
            with pytest.raises(RootChanged):
                pinned.checked(str(gone / "in"))
        else:
            assert pinned.checked(str(gone / "in")).identity is not None


@pytest.mark.parametrize("count", [40, 41])
def test_as_many_links_are_followed_as_linux_follows(root: Path, count: int) -> None:
    (root / "0").symlink_to("sub")
    for number in range(1, count):
        (root / str(number)).symlink_to(str(number - 1))
    last = root / str(count - 1)
    found = PinnedRoots().checked(str(last))
    if count == 40:
        assert last.is_dir()
        assert found.real == str(root / "sub")
    else:
        with pytest.raises(OSError, match="Too many levels"):
            last.stat()
        assert (found.real, found.identity) == (str(root / "0"), None)
