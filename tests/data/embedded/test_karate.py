"""The karate club: the edges and factions that networkx has."""

import networkx

from regard.data.embedded.karate import FACTIONS, LEADERS, NUM_MEMBERS, PAIRS


def test_it_is_the_graph_of_networkx() -> None:
    graph = networkx.karate_club_graph()
    assert len(graph) == NUM_MEMBERS == len(FACTIONS)
    assert len(PAIRS) == 78
    assert sorted(PAIRS) == sorted(graph.edges())
    assert [graph.nodes[member]["club"] != "Mr. Hi" for member in range(NUM_MEMBERS)] == [*map(bool, FACTIONS)]
    assert [FACTIONS[leader] for leader in LEADERS] == [0, 1]
