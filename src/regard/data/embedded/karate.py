"""Zachary's karate club: who met whom outside of the club, and which faction each joined when it split.  No torch here.

The facts are those of W. W. Zachary, "An information flow model for conflict and fission in small groups", Journal of
Anthropological Research 33 (1977), figures 1 and 3: 34 members, 78 pairs. Members are numbered from 0; 0 is the
instructor and 33 the president, who led the factions.
"""

NUM_MEMBERS = 34
LEADERS = (0, 33)

# the members of a higher number that each one met
_MET = {
    0: (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31),
    1: (2, 3, 7, 13, 17, 19, 21, 30),
    2: (3, 7, 8, 9, 13, 27, 28, 32),
    3: (7, 12, 13),
    4: (6, 10),
    5: (6, 10, 16),
    6: (16,),
    8: (30, 32, 33),
    9: (33,),
    13: (33,),
    14: (32, 33),
    15: (32, 33),
    18: (32, 33),
    19: (33,),
    20: (32, 33),
    22: (32, 33),
    23: (25, 27, 29, 32, 33),
    24: (25, 27, 31),
    25: (31,),
    26: (29, 33),
    27: (33,),
    28: (31, 33),
    29: (32, 33),
    30: (32, 33),
    31: (32, 33),
    32: (33,),
}
PAIRS: tuple[tuple[int, int], ...] = tuple((member, other) for member, others in _MET.items() for other in others)
_OF_INSTRUCTOR = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21}
# 0: the faction of the instructor, 1: that of the president
FACTIONS: tuple[int, ...] = tuple(int(member not in _OF_INSTRUCTOR) for member in range(NUM_MEMBERS))
