"""What a run tells its user: findings as data, their words, and the verdict that follows.

``finding`` the data; ``registry`` the words of each code, how serious it is, and what to do;
``diagnosis`` the verdict, and how it is shown and kept; ``words`` numbers and lists in words
"""
