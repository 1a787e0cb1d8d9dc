"""Solves transportation problems with HiGHS, a solver of linear programs.

Reads one JSON object per line: demand and bound of every zone, price[from][to]. Prints the cost of the optimum per
line. The test `optimum` of plimsoll-conformance compares plans with it.
"""

import json
import sys

import highspy
import numpy


def optimum(demand, bound, price):
    zones = len(demand)
    program = highspy.HighsLp()
    program.num_col_ = zones * zones
    program.num_row_ = 2 * zones
    program.col_cost_ = numpy.array(price, dtype=float).flatten()
    program.col_lower_ = numpy.zeros(zones * zones)
    program.col_upper_ = numpy.full(zones * zones, highspy.kHighsInf)
    # A row for each zone where requests arrive, and one for each that serves them.
    program.row_lower_ = numpy.array(demand + [-highspy.kHighsInf] * zones, dtype=float)
    program.row_upper_ = numpy.array(demand + bound, dtype=float)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = numpy.arange(0, 2 * zones * zones + 1, 2)
    rows = [row for source in range(zones) for to in range(zones) for row in (source, zones + to)]
    program.a_matrix_.index_ = numpy.array(rows)
    program.a_matrix_.value_ = numpy.ones(2 * zones * zones)
    solver = highspy.Highs()
    solver.silent()
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status != highspy.HighsModelStatus.kOptimal:
        raise SystemExit(f"{status} for {demand} {bound} {price}")
    return solver.getInfo().objective_function_value


for line in sys.stdin:
    problem = json.loads(line)
    print(optimum(problem["demand"], problem["bound"], problem["price"]))
